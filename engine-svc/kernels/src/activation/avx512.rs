//! SiLU in AVX-512.

use std::arch::x86_64::*;

use crate::math::avx512::{exp2, reciprocal};

/// `out = silu(gate) · up`.
///
/// # Panics
/// If the three differ in length.
#[target_feature(enable = "avx512f")]
pub(super) fn silu_mul(gate: &[f32], up: &[f32], out: &mut [f32]) {
    assert!(gate.len() == out.len() && up.len() == out.len(), "rows of different lengths");
    for ((gate, up), out) in gate.chunks(16).zip(up.chunks(16)).zip(out.chunks_mut(16)) {
        let mask = (0xffff_u32 >> (16 - out.len())) as u16;
        // SAFETY: the mask keeps to the elements of all three.
        unsafe {
            let (gate, up) =
                (_mm512_maskz_loadu_ps(mask, gate.as_ptr()), _mm512_maskz_loadu_ps(mask, up.as_ptr()));
            _mm512_mask_storeu_ps(out.as_mut_ptr(), mask, product(gate, up));
        }
    }
}

/// `silu(gate) · up` of a vector, the same bits as [`silu_mul`].
#[inline]
#[target_feature(enable = "avx512f")]
pub(crate) fn silu_mul_vector(gate: &[f32; 16], up: &[f32; 16]) -> __m512 {
    // SAFETY: a vector each.
    unsafe { product(_mm512_loadu_ps(gate.as_ptr()), _mm512_loadu_ps(up.as_ptr())) }
}

#[inline]
#[target_feature(enable = "avx512f")]
fn product(gate: __m512, up: __m512) -> __m512 {
    _mm512_mul_ps(_mm512_mul_ps(gate, sigmoid(gate)), up)
}

/// 1 / (1 + e⁻ˣ), from e^-|x|, which is at most 1.
#[inline]
#[target_feature(enable = "avx512f")]
fn sigmoid(x: __m512) -> __m512 {
    let power = _mm512_mul_ps(_mm512_abs_ps(x), _mm512_set1_ps(-std::f32::consts::LOG2_E));
    let small = exp2(power);
    let larger = reciprocal(_mm512_add_ps(small, _mm512_set1_ps(1.0)));
    let negative = _mm512_cmp_ps_mask::<_CMP_LT_OQ>(x, _mm512_setzero_ps());
    _mm512_mask_mul_ps(larger, negative, larger, small)
}
