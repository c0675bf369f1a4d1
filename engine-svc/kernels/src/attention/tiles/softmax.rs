//! Probabilities from scores, one query at a time, in AVX-512.

use std::arch::x86_64::*;

use half::bf16;

use super::TILE;
use crate::kv::BLOCK_TOKENS;
use crate::math::avx512::exp2;

/// Turns the scores of query `row` in `before` whole blocks, and of the first `seen` tokens of the one after them, into
/// `exp(scale · score - max)`: in `weights` for the whole blocks, in place for the last. Returns the maximum and the sum,
/// in lanes that are the same however many queries there are.
///
/// # Safety
/// The machine must have AVX512-BF16.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512bf16")]
pub(super) unsafe fn exponentials(
    scores: &mut [f32],
    weights: &mut [bf16],
    row: usize,
    before: usize,
    seen: usize,
    scale: f32,
) -> (f32, f32) {
    let place = |block: usize| block * TILE + row * BLOCK_TOKENS;
    assert!(row < TILE / BLOCK_TOKENS && before * TILE <= weights.len() && seen <= BLOCK_TOKENS);
    assert!((before + usize::from(seen > 0)) * TILE <= scores.len());
    let scores = scores.as_mut_ptr();
    let mask = ((1_u32 << seen) - 1) as __mmask16;
    // SAFETY: `place` of each block lies in both, as just checked.
    unsafe {
        let mut max = _mm512_set1_ps(f32::NEG_INFINITY);
        for block in 0..before {
            max = larger(max, _mm512_load_ps(scores.add(place(block))));
        }
        let own = if seen > 0 { scores.add(place(before)) } else { scores };
        max = _mm512_mask_mov_ps(max, mask, larger(max, _mm512_load_ps(own)));
        let max = _mm512_reduce_max_ps(max) * scale;
        let exponent = Exponent::new(scale, max);
        let mut sum = _mm512_setzero_ps();
        for block in 0..before {
            let weight = exponent.of(_mm512_load_ps(scores.add(place(block))));
            sum = _mm512_add_ps(sum, weight);
            let rounded: __m256i = std::mem::transmute(_mm512_cvtneps_pbh(weight));
            _mm256_store_si256(weights.as_mut_ptr().add(place(block)).cast(), rounded);
        }
        if seen > 0 {
            let weight = _mm512_maskz_mov_ps(mask, exponent.of(_mm512_load_ps(own)));
            sum = _mm512_add_ps(sum, weight);
            _mm512_store_ps(own, weight);
        }
        (max, _mm512_reduce_add_ps(sum))
    }
}

/// The larger of two lanes, or that of `a` if either is NaN.
#[inline]
#[target_feature(enable = "avx512f")]
fn larger(a: __m512, b: __m512) -> __m512 {
    _mm512_max_ps(b, a)
}

/// `exp(scale · x - max)`; NaN passes through.
struct Exponent {
    factor: __m512,
    offset: __m512,
}

impl Exponent {
    #[inline]
    #[target_feature(enable = "avx512f")]
    fn new(scale: f32, max: f32) -> Exponent {
        let log2_e = std::f32::consts::LOG2_E;
        Exponent { factor: _mm512_set1_ps(scale * log2_e), offset: _mm512_set1_ps(-max * log2_e) }
    }

    #[inline]
    #[target_feature(enable = "avx512f")]
    fn of(&self, x: __m512) -> __m512 {
        exp2(_mm512_fmadd_ps(x, self.factor, self.offset))
    }
}
