//! The two inner products of attention, one block of tokens at a time, for several queries at once;
//! which kernel computes them; and those kernels in plain Rust.
//!
//! Each score is one sum over the head dimension and each value one sum over tokens, both in
//! ascending order whatever the number of queries. Queries, scores and probabilities stay `f32`;
//! bf16 keys and values are widened.

use half::bf16;

#[cfg(target_arch = "x86_64")]
use super::avx512;
use crate::isa::{Isa, vectorised};
use crate::kv::{BLOCK_TOKENS, KvElement};

/// Rows of floats, `stride` apart.
#[derive(Clone, Copy)]
pub(super) struct Matrix<'a> {
    pub(super) data: &'a [f32],
    pub(super) stride: usize,
    pub(super) rows: usize,
}

/// What attention does with one kind of KV element.
pub(super) trait Element: KvElement {
    /// `scores[q][t] = scale · Σ queries[q][i] · keys[t][i]` for the 16 tokens of one block, rows of
    /// scores `stride` apart; the head dimension is the queries' stride.
    fn scores(isa: Isa, queries: Matrix<'_>, keys: &[Self], scale: f32, scores: &mut [f32], stride: usize);

    /// `out[q] += Σ weights[q][t] · values[t]` over the first `tokens` tokens of one block; the other
    /// slots do not reach the sum, whatever they hold. Rows of `out` are `stride` apart.
    fn weigh(isa: Isa, weights: Matrix<'_>, tokens: usize, values: &[Self], out: &mut [f32], stride: usize);
}

macro_rules! element {
    ($type:ty, $scores:ident, $weigh:ident, $scores_avx512:ident, $weigh_avx512:ident) => {
        impl Element for $type {
            fn scores(
                isa: Isa,
                queries: Matrix<'_>,
                keys: &[$type],
                scale: f32,
                scores: &mut [f32],
                stride: usize,
            ) {
                #[cfg(target_arch = "x86_64")]
                if isa >= Isa::Avx512 {
                    // SAFETY: an `Isa` in a pool was checked to be available.
                    unsafe { avx512::$scores_avx512(queries, keys, scale, scores, stride) };
                    return;
                }
                for query in 0..queries.rows {
                    let q = &queries.data[query * queries.stride..][..queries.stride];
                    $scores(isa, q, keys, scale, &mut scores[query * stride..][..BLOCK_TOKENS]);
                }
            }

            fn weigh(
                isa: Isa,
                weights: Matrix<'_>,
                tokens: usize,
                values: &[$type],
                out: &mut [f32],
                stride: usize,
            ) {
                #[cfg(target_arch = "x86_64")]
                if isa >= Isa::Avx512 {
                    // SAFETY: an `Isa` in a pool was checked to be available.
                    unsafe { avx512::$weigh_avx512(weights, tokens, values, out, stride) };
                    return;
                }
                for query in 0..weights.rows {
                    let weights = &weights.data[query * weights.stride..][..tokens];
                    let out = &mut out[query * stride..][..values.len() / BLOCK_TOKENS];
                    $weigh(isa, weights, values, out);
                }
            }
        }
    };
}

element!(f32, scores_f32, weigh_f32, scores_f32, weigh_f32);
element!(bf16, scores_bf16, weigh_bf16, scores_bf16, weigh_bf16);

vectorised! {
    fn scores_f32(q: &[f32], keys: &[f32], scale: f32, scores: &mut [f32]) {
        let mut sums = [0.0; BLOCK_TOKENS];
        for (q, keys) in q.iter().zip(keys.as_chunks::<BLOCK_TOKENS>().0) {
            for (sum, key) in sums.iter_mut().zip(keys) {
                *sum += q * key;
            }
        }
        for (score, sum) in scores.iter_mut().zip(sums) {
            *score = sum * scale;
        }
    }
}

vectorised! {
    fn scores_bf16(q: &[f32], keys: &[bf16], scale: f32, scores: &mut [f32]) {
        let mut sums = [0.0; BLOCK_TOKENS];
        for (q, keys) in q.as_chunks::<2>().0.iter().zip(keys.as_chunks::<{ 2 * BLOCK_TOKENS }>().0) {
            for (sum, key) in sums.iter_mut().zip(keys.as_chunks::<2>().0) {
                *sum += q[0] * widen(key[0]);
                *sum += q[1] * widen(key[1]);
            }
        }
        for (score, sum) in scores.iter_mut().zip(sums) {
            *score = sum * scale;
        }
    }
}

vectorised! {
    fn weigh_f32(weights: &[f32], values: &[f32], out: &mut [f32]) {
        for (weight, values) in weights.iter().zip(values.chunks_exact(out.len())) {
            for (out, value) in out.iter_mut().zip(values) {
                *out += weight * value;
            }
        }
    }
}

vectorised! {
    fn weigh_bf16(weights: &[f32], values: &[bf16], out: &mut [f32]) {
        for (weights, values) in weights.chunks(2).zip(values.chunks_exact(2 * out.len())) {
            for (index, weight) in weights.iter().enumerate() {
                for (out, value) in out.iter_mut().zip(values.as_chunks::<2>().0) {
                    *out += weight * widen(value[index]);
                }
            }
        }
    }
}

#[inline(always)]
fn widen(value: bf16) -> f32 {
    f32::from_bits(u32::from(value.to_bits()) << 16)
}
