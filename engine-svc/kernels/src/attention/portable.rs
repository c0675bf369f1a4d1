//! The inner products of attention in plain Rust, compiled for each instruction set.

use half::bf16;

use crate::isa::{Isa, vectorised};
use crate::kv::{BLOCK_TOKENS, KvElement};

/// What attention does with one kind of KV element.
pub(super) trait Element: KvElement {
    /// Brings a query to the precision in which it meets the keys.
    fn operand(from: &[f32], to: &mut [f32]);

    /// `scores[t] = scale · Σ q[i] · keys[t][i]` for the 16 tokens of one block.
    fn scores(isa: Isa, q: &[f32], keys: &[Self], scale: f32, scores: &mut [f32]);

    /// Turns scores into `exp(score - max)`, in the precision in which they meet the values; returns
    /// the maximum and the sum.
    fn probabilities(isa: Isa, scores: &mut [f32]) -> (f32, f32);

    /// `out += Σ weights[t] · values[t]` over the tokens that have a weight; other slots are not read
    /// into the sum, whatever they hold.
    fn weigh(isa: Isa, weights: &[f32], values: &[Self], out: &mut [f32]);
}

impl Element for f32 {
    fn operand(from: &[f32], to: &mut [f32]) {
        to.copy_from_slice(from);
    }

    fn scores(isa: Isa, q: &[f32], keys: &[f32], scale: f32, scores: &mut [f32]) {
        scores_f32(isa, q, keys, scale, scores);
    }

    fn probabilities(isa: Isa, scores: &mut [f32]) -> (f32, f32) {
        exponentials(isa, scores)
    }

    fn weigh(isa: Isa, weights: &[f32], values: &[f32], out: &mut [f32]) {
        weigh_f32(isa, weights, values, out);
    }
}

impl Element for bf16 {
    fn operand(from: &[f32], to: &mut [f32]) {
        for (from, to) in from.iter().zip(to) {
            *to = bf16::from_f32(*from).to_f32();
        }
    }

    fn scores(isa: Isa, q: &[f32], keys: &[bf16], scale: f32, scores: &mut [f32]) {
        scores_bf16(isa, q, keys, scale, scores);
    }

    fn probabilities(isa: Isa, scores: &mut [f32]) -> (f32, f32) {
        let result = exponentials(isa, scores);
        for score in scores {
            *score = bf16::from_f32(*score).to_f32();
        }
        result
    }

    fn weigh(isa: Isa, weights: &[f32], values: &[bf16], out: &mut [f32]) {
        weigh_bf16(isa, weights, values, out);
    }
}

vectorised! {
    fn scores_f32(q: &[f32], keys: &[f32], scale: f32, scores: &mut [f32]) {
        let mut sums = [0.0; BLOCK_TOKENS];
        for (q, keys) in q.iter().zip(keys.chunks_exact(BLOCK_TOKENS)) {
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
        for (q, keys) in q.chunks_exact(2).zip(keys.chunks_exact(2 * BLOCK_TOKENS)) {
            for (sum, key) in sums.iter_mut().zip(keys.chunks_exact(2)) {
                *sum += q[0] * widen(key[0]) + q[1] * widen(key[1]);
            }
        }
        for (score, sum) in scores.iter_mut().zip(sums) {
            *score = sum * scale;
        }
    }
}

vectorised! {
    fn exponentials(scores: &mut [f32]) -> (f32, f32) {
        let max = scores.iter().fold(f32::NEG_INFINITY, |max, score| max.max(*score));
        let mut lanes = [0.0; BLOCK_TOKENS];
        for block in scores.chunks_mut(BLOCK_TOKENS) {
            for (lane, score) in lanes.iter_mut().zip(block) {
                *score = (*score - max).exp();
                *lane += *score;
            }
        }
        (max, lanes.iter().sum())
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
            match *weights {
                [first, second] => {
                    for (out, value) in out.iter_mut().zip(values.chunks_exact(2)) {
                        *out += first * widen(value[0]) + second * widen(value[1]);
                    }
                }
                [last] => {
                    for (out, value) in out.iter_mut().zip(values.chunks_exact(2)) {
                        *out += last * widen(value[0]);
                    }
                }
                _ => {}
            }
        }
    }
}

#[inline(always)]
fn widen(value: bf16) -> f32 {
    f32::from_bits(u32::from(value.to_bits()) << 16)
}
