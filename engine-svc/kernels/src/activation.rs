//! Activation functions of the feed-forward block.

use crate::pool::Pool;

/// `out = silu(gate) · up` with `gate_up[M, 2F]` holding `gate | up` in each row, `out[M, F]`
/// (Shazeer 2020, SwiGLU).
///
/// # Panics
/// If the lengths do not fit.
pub fn silu_mul(pool: &Pool, gate_up: &[f32], features: usize, out: &mut [f32]) {
    assert_eq!(
        gate_up.len(),
        2 * out.len(),
        "input is twice as wide as output"
    );
    pool.for_rows(out, features, |index, out| {
        let (gate, up) = gate_up[index * 2 * features..][..2 * features].split_at(features);
        for ((out, &gate), up) in out.iter_mut().zip(gate).zip(up) {
            *out = gate / (1.0 + (-gate).exp()) * up;
        }
    });
}

/// The Gaussian error linear unit in its tanh form, in place, over rows of `features` (GPT-2's
/// `gelu_new`; Hendrycks and Gimpel 2016).
///
/// # Panics
/// If `x` is not a whole number of rows.
pub fn gelu_tanh(pool: &Pool, x: &mut [f32], features: usize) {
    const SQRT_2_OVER_PI: f32 = 0.797_884_6;
    pool.for_rows(x, features, |_, row| {
        for x in row {
            let inner = SQRT_2_OVER_PI * (*x + 0.044_715 * *x * *x * *x);
            *x = 0.5 * *x * (1.0 + inner.tanh());
        }
    });
}

/// The exact Gaussian error linear unit, `x · Φ(x)`, in place, over rows of `features`.
///
/// # Panics
/// If `x` is not a whole number of rows.
pub fn gelu_erf(pool: &Pool, x: &mut [f32], features: usize) {
    pool.for_rows(x, features, |_, row| {
        for x in row {
            *x = 0.5 * *x * (1.0 + erf(*x * std::f32::consts::FRAC_1_SQRT_2));
        }
    });
}

/// The error function to 1.2e-7 (Numerical Recipes, `erfc` by Chebyshev fitting).
fn erf(x: f32) -> f32 {
    let z = f64::from(x).abs();
    let t = 1.0 / (1.0 + 0.5 * z);
    const COEFFICIENTS: [f64; 10] = [
        -1.265_512_23,
        1.000_023_68,
        0.374_091_96,
        0.096_784_18,
        -0.186_288_06,
        0.278_868_07,
        -1.135_203_98,
        1.488_515_87,
        -0.822_152_23,
        0.170_872_77,
    ];
    let polynomial = COEFFICIENTS.iter().rev().fold(0.0, |sum, c| sum * t + c);
    let erfc = t * (-z * z + polynomial).exp();
    (if x >= 0.0 { 1.0 - erfc } else { erfc - 1.0 }) as f32
}
