//! The inner products of attention for AVX-512: a block's 16 tokens are the lanes of a score vector,
//! 16 dimensions those of a value vector.
//!
//! Contract: slices have the shapes that [`Element`](super::product::Element) and
//! [`KvLayout`](crate::kv::KvLayout) give them, which each function checks before it takes pointers.
#![allow(clippy::needless_range_loop, reason = "an index names a row of several arrays")]

use std::arch::x86_64::*;

use half::bf16;

use super::product::Matrix;
use crate::kv::{BLOCK_TOKENS, KvElement};

/// A KV element that can be read 16 groups at a time.
trait Lanes: KvElement {
    /// 16 groups from `from` on, widened: element 0 of each group, and element 1 where groups are pairs.
    ///
    /// # Safety
    /// 64 bytes must be readable.
    unsafe fn load(from: *const Self) -> [__m512; 2];
}

impl Lanes for f32 {
    #[inline]
    #[target_feature(enable = "avx512f")]
    unsafe fn load(from: *const f32) -> [__m512; 2] {
        // SAFETY: the caller's promise.
        [unsafe { _mm512_loadu_ps(from) }, _mm512_setzero_ps()]
    }
}

impl Lanes for bf16 {
    #[inline]
    #[target_feature(enable = "avx512f")]
    unsafe fn load(from: *const bf16) -> [__m512; 2] {
        // SAFETY: the caller's promise.
        let pairs = unsafe { _mm512_loadu_si512(from.cast()) };
        let high = _mm512_and_si512(pairs, _mm512_set1_epi32(0xffff_0000_u32.cast_signed()));
        [_mm512_castsi512_ps(_mm512_slli_epi32::<16>(pairs)), _mm512_castsi512_ps(high)]
    }
}

macro_rules! entry {
    ($type:ty, $scores:ident, $weigh:ident) => {
        /// See [`Element::scores`](super::product::Element::scores).
        #[target_feature(enable = "avx512f")]
        pub(super) fn $scores(
            queries: Matrix<'_>,
            keys: &[$type],
            scale: f32,
            scores: &mut [f32],
            stride: usize,
        ) {
            score_all(queries, keys, scale, scores, stride);
        }

        /// See [`Element::weigh`](super::product::Element::weigh).
        #[target_feature(enable = "avx512f")]
        pub(super) fn $weigh(
            weights: Matrix<'_>,
            tokens: usize,
            values: &[$type],
            out: &mut [f32],
            stride: usize,
        ) {
            weigh_all(weights, tokens, values, out, stride);
        }
    };
}

entry!(f32, scores_f32, weigh_f32);
entry!(bf16, scores_bf16, weigh_bf16);

#[inline]
#[target_feature(enable = "avx512f")]
fn score_all<T: Lanes>(queries: Matrix<'_>, keys: &[T], scale: f32, scores: &mut [f32], stride: usize) {
    let dim = queries.stride;
    assert!(queries.rows * dim <= queries.data.len() && keys.len() == dim * BLOCK_TOKENS);
    assert!(queries.rows > 0 && (queries.rows - 1) * stride + BLOCK_TOKENS <= scores.len());
    let mut query = 0;
    while query < queries.rows {
        let count = (queries.rows - query).min(8);
        // SAFETY: `count` queries and rows of scores lie in their slices, as just checked.
        unsafe {
            let q = queries.data.as_ptr().add(query * dim);
            let to = scores.as_mut_ptr().add(query * stride);
            let k = keys.as_ptr();
            match count {
                1 => score::<T, 1>(q, dim, k, scale, to, stride),
                2 => score::<T, 2>(q, dim, k, scale, to, stride),
                3 => score::<T, 3>(q, dim, k, scale, to, stride),
                4 => score::<T, 4>(q, dim, k, scale, to, stride),
                5 => score::<T, 5>(q, dim, k, scale, to, stride),
                6 => score::<T, 6>(q, dim, k, scale, to, stride),
                7 => score::<T, 7>(q, dim, k, scale, to, stride),
                _ => score::<T, 8>(q, dim, k, scale, to, stride),
            }
        }
        query += count;
    }
}

/// # Safety
/// There must be `Q` queries of `dim` floats, one block of keys, and `Q` rows of 16 scores.
#[inline]
#[target_feature(enable = "avx512f")]
unsafe fn score<T: Lanes, const Q: usize>(
    q: *const f32,
    dim: usize,
    keys: *const T,
    scale: f32,
    scores: *mut f32,
    stride: usize,
) {
    let mut even = [_mm512_setzero_ps(); Q];
    let mut odd = [_mm512_setzero_ps(); Q];
    for group in 0..dim / T::GROUP {
        // SAFETY: group × GROUP stays below `dim`.
        unsafe {
            let [first, second] = T::load(keys.add(group * BLOCK_TOKENS * T::GROUP));
            for query in 0..Q {
                let q = q.add(query * dim + group * T::GROUP);
                even[query] = _mm512_fmadd_ps(_mm512_set1_ps(q.read()), first, even[query]);
                if T::GROUP == 2 {
                    odd[query] = _mm512_fmadd_ps(_mm512_set1_ps(q.add(1).read()), second, odd[query]);
                }
            }
        }
    }
    for query in 0..Q {
        let sum = if T::GROUP == 2 { _mm512_add_ps(even[query], odd[query]) } else { even[query] };
        // SAFETY: the caller's promise.
        unsafe { _mm512_storeu_ps(scores.add(query * stride), _mm512_mul_ps(sum, _mm512_set1_ps(scale))) };
    }
}

#[inline]
#[target_feature(enable = "avx512f")]
fn weigh_all<T: Lanes>(weights: Matrix<'_>, tokens: usize, values: &[T], out: &mut [f32], stride: usize) {
    let dim = values.len() / BLOCK_TOKENS;
    assert!(tokens <= BLOCK_TOKENS && dim.is_multiple_of(16) && dim * BLOCK_TOKENS == values.len());
    assert!(weights.rows > 0 && (weights.rows - 1) * stride + dim <= out.len());
    assert!((weights.rows - 1) * weights.stride + tokens <= weights.data.len());
    let mut query = 0;
    while query < weights.rows {
        let count = (weights.rows - query).min(4);
        let mut first = 0;
        while first < dim {
            let wide = dim - first >= 64;
            // SAFETY: `count` rows and 16 or 64 columns lie in the slices, as just checked.
            unsafe {
                let p = weights.data.as_ptr().add(query * weights.stride);
                let v = values.as_ptr().add(first * T::GROUP);
                let o = out.as_mut_ptr().add(query * stride + first);
                let shape = (weights.stride, tokens, dim, stride);
                match (count, wide) {
                    (1, true) => weigh::<T, 1, 4>(p, v, o, shape),
                    (2, true) => weigh::<T, 2, 4>(p, v, o, shape),
                    (3, true) => weigh::<T, 3, 4>(p, v, o, shape),
                    (_, true) => weigh::<T, 4, 4>(p, v, o, shape),
                    (1, false) => weigh::<T, 1, 1>(p, v, o, shape),
                    (2, false) => weigh::<T, 2, 1>(p, v, o, shape),
                    (3, false) => weigh::<T, 3, 1>(p, v, o, shape),
                    (_, false) => weigh::<T, 4, 1>(p, v, o, shape),
                }
            }
            first += if wide { 64 } else { 16 };
        }
        query += count;
    }
}

/// # Safety
/// There must be `Q` rows of `tokens` weights and of `V` output vectors, and a block of values.
#[inline]
#[target_feature(enable = "avx512f")]
unsafe fn weigh<T: Lanes, const Q: usize, const V: usize>(
    weights: *const f32,
    values: *const T,
    out: *mut f32,
    (weight_stride, tokens, dim, stride): (usize, usize, usize, usize),
) {
    let mut sums = [[_mm512_setzero_ps(); V]; Q];
    for query in 0..Q {
        for vector in 0..V {
            // SAFETY: the caller's promise.
            sums[query][vector] = unsafe { _mm512_loadu_ps(out.add(query * stride + vector * 16)) };
        }
    }
    for group in 0..tokens.div_ceil(T::GROUP) {
        let both = T::GROUP == 2 && 2 * group + 1 < tokens;
        for vector in 0..V {
            // SAFETY: the caller's promise; a weight is read only below `tokens`.
            unsafe {
                let [first, second] = T::load(values.add((group * dim + vector * 16) * T::GROUP));
                for query in 0..Q {
                    let weight = weights.add(query * weight_stride + group * T::GROUP);
                    let sum = &mut sums[query][vector];
                    *sum = _mm512_fmadd_ps(_mm512_set1_ps(weight.read()), first, *sum);
                    if both {
                        *sum = _mm512_fmadd_ps(_mm512_set1_ps(weight.add(1).read()), second, *sum);
                    }
                }
            }
        }
    }
    for query in 0..Q {
        for vector in 0..V {
            // SAFETY: the caller's promise.
            unsafe { _mm512_storeu_ps(out.add(query * stride + vector * 16), sums[query][vector]) };
        }
    }
}
