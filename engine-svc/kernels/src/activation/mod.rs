//! Activation functions of the feed-forward block.

#[cfg(target_arch = "x86_64")]
mod avx512;

#[cfg(target_arch = "x86_64")]
pub(crate) use avx512::silu_mul_vector;

use crate::isa::{Isa, vectorised};
use crate::math;
use crate::pool::Pool;

/// `out = silu(gate) · up` with `gate_up[M, 2F]` holding `gate | up` in each row, `out[M, F]`
/// (SwiGLU, Shazeer 2020).
///
/// # Panics
/// If the lengths do not fit.
pub fn silu_mul(pool: &Pool, gate_up: &[f32], features: usize, out: &mut [f32]) {
    assert_eq!(gate_up.len(), 2 * out.len(), "input is twice as wide as output");
    let isa = pool.isa();
    pool.for_rows(out, features, |index, out| {
        let (gate, up) = gate_up[index * 2 * features..][..2 * features].split_at(features);
        silu_mul_row(isa, gate, up, out);
    });
}

/// The Gaussian error linear unit in its tanh form, in place, over rows of `features` (GPT-2's
/// `gelu_new`; Hendrycks and Gimpel 2016).
///
/// # Panics
/// If `x` is not a whole number of rows.
pub fn gelu_tanh(pool: &Pool, x: &mut [f32], features: usize) {
    let isa = pool.isa();
    pool.for_rows(x, features, |_, row| gelu_tanh_row(isa, row));
}

/// The exact Gaussian error linear unit, `x · Φ(x)`, in place, over rows of `features`.
///
/// # Panics
/// If `x` is not a whole number of rows.
pub fn gelu_erf(pool: &Pool, x: &mut [f32], features: usize) {
    let isa = pool.isa();
    pool.for_rows(x, features, |_, row| gelu_erf_row(isa, row));
}

/// One row of [`silu_mul`], or a part of it.
pub(crate) fn silu_mul_row(isa: Isa, gate: &[f32], up: &[f32], out: &mut [f32]) {
    #[cfg(target_arch = "x86_64")]
    if isa >= Isa::Avx512 {
        // SAFETY: an `Isa` in a pool was checked to be available.
        return unsafe { avx512::silu_mul(gate, up, out) };
    }
    silu_mul_lanes(isa, gate, up, out);
}

vectorised! {
    fn silu_mul_lanes(gate: &[f32], up: &[f32], out: &mut [f32]) {
        for ((out, gate), up) in out.iter_mut().zip(gate).zip(up) {
            *out = gate * math::sigmoid(*gate) * up;
        }
    }
}

vectorised! {
    fn gelu_tanh_row(row: &mut [f32]) {
        const SQRT_2_OVER_PI: f32 = 0.797_884_6;
        for x in row {
            let inner = SQRT_2_OVER_PI * (*x + 0.044_715 * *x * *x * *x);
            *x = 0.5 * *x * (1.0 + math::tanh(inner));
        }
    }
}

vectorised! {
    fn gelu_erf_row(row: &mut [f32]) {
        for x in row {
            *x = 0.5 * *x * (1.0 + math::erf(*x * std::f32::consts::FRAC_1_SQRT_2));
        }
    }
}
