//! Probabilities from scores, some queries at a time, in AVX-512.

use std::arch::x86_64::*;
use std::array;

use half::bf16;

use super::TILE;
use crate::kv::BLOCK_TOKENS;
use crate::math::avx512::exp2;
use crate::rounding::rounded;

/// Queries whose exponentials take turns: one alone waits for its own results.
pub(super) const TOGETHER: usize = 4;

/// Turns the scores of queries `row..` in `before` whole blocks, and of the first `seen` tokens of the one after them,
/// into `exp(scale · score - max)`: in `weights` for the whole blocks, in place for the last. Returns the maximum and
/// the sum of each query, in lanes that are the same however many queries there are.
///
/// # Safety
/// The machine must have AVX512-BF16.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512bf16")]
pub(super) unsafe fn exponentials(
    scores: &mut [f32],
    weights: &mut [bf16],
    row: usize,
    before: usize,
    seen: [usize; TOGETHER],
    scale: f32,
) -> [(f32, f32); TOGETHER] {
    let place = |block: usize, query: usize| block * TILE + (row + query) * BLOCK_TOKENS;
    let own = usize::from(seen != [0; TOGETHER]);
    assert!(row + TOGETHER <= TILE / BLOCK_TOKENS && seen.iter().all(|&seen| seen <= BLOCK_TOKENS));
    assert!(before * TILE <= weights.len() && (before + own) * TILE <= scores.len());
    let scores = scores.as_mut_ptr();
    let masks = seen.map(|seen| ((1_u32 << seen) - 1) as __mmask16);
    // SAFETY: `place` of each block and query lies in both, as just checked.
    unsafe {
        let mut max = [_mm512_set1_ps(f32::NEG_INFINITY); TOGETHER];
        for block in 0..before {
            for (query, max) in max.iter_mut().enumerate() {
                *max = larger(*max, _mm512_load_ps(scores.add(place(block, query))));
            }
        }
        for (query, max) in max.iter_mut().enumerate().take(own * TOGETHER) {
            let score = _mm512_load_ps(scores.add(place(before, query)));
            *max = _mm512_mask_mov_ps(*max, masks[query], larger(*max, score));
        }
        let max = max.map(|max| _mm512_reduce_max_ps(max) * scale);
        let exponent = max.map(|max| Exponent::new(scale, max));
        let mut sum = [_mm512_setzero_ps(); TOGETHER];
        for block in 0..before {
            for (query, sum) in sum.iter_mut().enumerate() {
                let weight = exponent[query].of(_mm512_load_ps(scores.add(place(block, query))));
                *sum = _mm512_add_ps(*sum, weight);
                _mm256_store_si256(weights.as_mut_ptr().add(place(block, query)).cast(), rounded(weight));
            }
        }
        for (query, sum) in sum.iter_mut().enumerate().take(own * TOGETHER) {
            let place = scores.add(place(before, query));
            let weight = _mm512_maskz_mov_ps(masks[query], exponent[query].of(_mm512_load_ps(place)));
            *sum = _mm512_add_ps(*sum, weight);
            _mm512_store_ps(place, weight);
        }
        let sum = sum.map(|sum| _mm512_reduce_add_ps(sum));
        array::from_fn(|query| (max[query], sum[query]))
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
