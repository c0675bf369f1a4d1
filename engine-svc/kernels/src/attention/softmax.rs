//! Softmax over tiles: exponentials of one tile, and the running result of a query that tiles are
//! merged into (online softmax, Milakov and Gimelshein 2018).

use crate::isa::{Isa, vectorised};
use crate::kv::KvLayout;
use crate::math::{self, LANES, reduce};

/// Floats of a state before its values.
pub(super) const HEADER: usize = 16;

/// A running result in one flat slice: `[max, sum, 14 unused, values…]`, so that values stay aligned.
pub(super) struct State;

impl State {
    /// Floats of one state.
    pub(super) fn len(layout: &KvLayout) -> usize {
        HEADER + layout.value_dim()
    }

    /// Starts a tile: its maximum score and sum of exponentials, and values to be summed up.
    pub(super) fn reset(state: &mut [f32], max: f32, sum: f32) {
        State::values(state).fill(0.0);
        State::begin(state, max, sum);
    }

    /// As [`State::reset`], where values will be overwritten.
    pub(super) fn begin(state: &mut [f32], max: f32, sum: f32) {
        state[..2].copy_from_slice(&[max, sum]);
    }

    /// The weighted values.
    pub(super) fn values(state: &mut [f32]) -> &mut [f32] {
        &mut state[HEADER..]
    }

    /// Merges each of the states in `from`, a tile that follows all that is in `into`, into its own there; those beyond
    /// the last of either stay as they are.
    pub(super) fn merge_each(isa: Isa, state_len: usize, into: &mut [f32], from: &[f32]) {
        let together = LANES * state_len;
        for (into, from) in into.chunks_mut(together).zip(from.chunks(together)) {
            merge_lanes(isa, state_len, into, from);
        }
    }

    /// Writes the attention output, `out.len()` being the head dimension.
    pub(super) fn finish(state: &[f32], out: &mut [f32]) {
        let scale = 1.0 / state[1];
        for (out, value) in out.iter_mut().zip(&state[HEADER..]) {
            *out = value * scale;
        }
    }
}

vectorised! {
    /// Merges up to [`LANES`] states.
    fn merge_lanes(state_len: usize, into: &mut [f32], from: &[f32]) {
        let (mut keep, mut take) = ([0.0; LANES], [0.0; LANES]);
        for (lane, (into, from)) in
            into.chunks_exact_mut(state_len).zip(from.chunks_exact(state_len)).enumerate()
        {
            let max = into[0].max(from[0]);
            (keep[lane], take[lane]) = (into[0] - max, from[0] - max);
            // The largest score alone contributes 1, so only an empty tile has no sum.
            if from[1] != 0.0 {
                into[0] = max;
            }
        }
        for factors in [&mut keep, &mut take] {
            for factor in factors {
                *factor = math::exp(*factor);
            }
        }
        for (lane, (into, from)) in
            into.chunks_exact_mut(state_len).zip(from.chunks_exact(state_len)).enumerate()
        {
            if from[1] != 0.0 {
                into[1] = into[1] * keep[lane] + from[1] * take[lane];
                for (into, from) in into[HEADER..].iter_mut().zip(&from[HEADER..]) {
                    *into = *into * keep[lane] + from * take[lane];
                }
            }
        }
    }
}

vectorised! {
    /// Turns scores into `exp(score - max)`; returns the maximum and the sum, each reduced in 16
    /// fixed lanes. Of no scores at all: negative infinity and zero.
    pub(super) fn exponentials(scores: &mut [f32]) -> (f32, f32) {
        let max = math::largest(scores);
        let mut sums = [0.0; LANES];
        let (whole, rest) = scores.as_chunks_mut::<LANES>();
        for chunk in whole {
            for (sum, score) in sums.iter_mut().zip(chunk) {
                *score = math::exp(*score - max);
                *sum += *score;
            }
        }
        for (sum, score) in sums.iter_mut().zip(rest) {
            *score = math::exp(*score - max);
            *sum += *score;
        }
        (max, reduce(sums, |a, b| a + b))
    }
}
