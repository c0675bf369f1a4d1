//! Probabilities from scores, one query at a time: exponentials to within what rounding to bf16 leaves, in AVX-512.

use std::arch::x86_64::*;

use half::bf16;

use super::TILE;
use crate::kv::BLOCK_TOKENS;

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

/// `exp(scale · x - max)`, to 3e-6 of itself; NaN passes through.
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
        /// Adding this to a small float leaves its nearest integer in the low bits.
        const ROUND: f32 = 12_582_912.0;
        // 2ʳ on |r| ≤ ½, the Taylor series of e^(r ln 2).
        const SERIES: [f32; 5] =
            [0.001_333_355_8, 0.009_618_129, 0.055_504_11, 0.240_226_5, std::f32::consts::LN_2];
        let power = _mm512_fmadd_ps(x, self.factor, self.offset);
        // Far below what a float can hold; the second operand is returned where one is NaN.
        let power = _mm512_max_ps(_mm512_set1_ps(-160.0), power);
        let round = _mm512_set1_ps(ROUND);
        let whole = _mm512_sub_ps(_mm512_add_ps(power, round), round);
        let rest = _mm512_sub_ps(power, whole);
        let mut sum = _mm512_set1_ps(SERIES[0]);
        for coefficient in &SERIES[1..] {
            sum = _mm512_fmadd_ps(sum, rest, _mm512_set1_ps(*coefficient));
        }
        _mm512_scalef_ps(_mm512_fmadd_ps(sum, rest, _mm512_set1_ps(1.0)), whole)
    }
}
