//! What every kernel must do, against references in 64 bits.
//!
//! Shared by `tests/emulated`, where the kernels run on the CPU, and by `examples/check_on_gpu`. Each gives it a
//! `crate::platform` with `Kernels`, which launches, and `Buf`, which is memory of the device.

mod activation;
mod embed;
mod kv_append_rope;
mod norm;
mod numbers;
mod paged;
mod paged_decode;
mod paged_prefill;
pub mod report;
mod sample;

use firstlight_cuda::source::Family;

use crate::platform::Kernels;

/// The largest error that a check has seen, as a part of what it allows; or what went wrong.
pub type Checked = Result<f64, String>;

/// Checks every kernel of a module.
pub fn check(kernels: &Kernels) -> Checked {
    match kernels.module().family {
        Family::PagedDecode => paged_decode::check(kernels),
        Family::PagedPrefill => paged_prefill::check(kernels),
        Family::KvAppendRope => kv_append_rope::check(kernels),
        Family::Norm => norm::check(kernels),
        Family::Activation => activation::check(kernels),
        Family::Embed => embed::check(kernels),
        Family::Sample => sample::check(kernels),
    }
}
