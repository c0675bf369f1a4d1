//! 16-bit numbers as the kernels have them.

use firstlight_cuda::source::Number;
use half::{bf16, f16};

/// The nearest number.
pub(super) fn narrow(number: Number, value: f32) -> u16 {
    match number {
        Number::Bf16 => bf16::from_f32(value).to_bits(),
        Number::F16 => f16::from_f32(value).to_bits(),
    }
}
