//! The kernels' logic on the CPU: the sources that the GPU gets, through `emulate/`, against references in 64 bits.
//!
//! Inputs are read-only and lie against guard pages, outputs and unused places are poisoned, threads run in several
//! orders. `mutants` shows that these checks find broken kernels.

#[path = "../../checks/mod.rs"]
mod checks;
mod mutants;
mod report;

/// What `checks` run on.
mod platform {
    pub use firstlight_cuda_emulate::kernels::Kernels;
    pub use firstlight_cuda_emulate::memory::Buf;
}

use checks::check;
use firstlight_cuda::source::{Family, Module};
use firstlight_cuda_emulate::kernels::Kernels;

/// Every module of a family, in both number formats and all head dimensions.
fn check_family(family: Family) {
    for module in Module::all().into_iter().filter(|module| module.family == family) {
        match check(&Kernels::build(&module)) {
            Ok(worst) => println!("{}: {:.0} % of the error allowed", module.name(), 100.0 * worst),
            Err(reason) => panic!("{}: {reason}", module.name()),
        }
    }
}

#[test]
fn decode_attention_is_exact_to_rounding() {
    check_family(Family::PagedDecode);
}

#[test]
fn prefill_attention_is_exact_to_rounding() {
    check_family(Family::PagedPrefill);
}

#[test]
fn keys_are_rotated_and_land_in_their_places() {
    check_family(Family::KvAppendRope);
}

#[test]
fn norms_are_exact_to_rounding() {
    check_family(Family::Norm);
}

#[test]
fn activations_are_exact_to_rounding() {
    check_family(Family::Activation);
}

#[test]
fn embeddings_come_from_the_host_or_from_the_forward_before() {
    check_family(Family::Embed);
}

#[test]
fn tokens_are_chosen_as_the_engine_chooses_them() {
    check_family(Family::Sample);
}
