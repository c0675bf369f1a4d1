//! The running result of a query: maximum, sum of exponentials and weighted values, in one flat
//! slice `[max, sum, 14 unused, values…]` so that values stay aligned (online softmax, Milakov and
//! Gimelshein 2018).

use crate::isa::vectorised;
use crate::kv::KvLayout;

const HEADER: usize = 16;

/// Functions over a state's flat slice.
pub(super) struct State;

impl State {
    /// Floats of one state.
    pub(super) fn len(layout: &KvLayout) -> usize {
        HEADER + layout.value_dim()
    }

    /// Writes the maximum and the sum of a tile; the values are written in place.
    pub(super) fn set(state: &mut [f32], max: f32, sum: f32) {
        state[0] = max;
        state[1] = sum;
    }

    /// Marks a tile of which the query sees nothing.
    pub(super) fn set_empty(state: &mut [f32]) {
        State::set(state, f32::NEG_INFINITY, 0.0);
    }

    /// The weighted values.
    pub(super) fn values(state: &mut [f32]) -> &mut [f32] {
        &mut state[HEADER..]
    }

    /// Merges the tile `from`, which follows all that is in `into`.
    pub(super) fn merge(isa: crate::isa::Isa, into: &mut [f32], from: &[f32]) {
        // The largest score alone contributes 1, so only an empty tile has no sum.
        if from[1] == 0.0 {
            return;
        }
        let max = into[0].max(from[0]);
        let (keep, take) = ((into[0] - max).exp(), (from[0] - max).exp());
        into[0] = max;
        into[1] = into[1] * keep + from[1] * take;
        blend(isa, &mut into[HEADER..], &from[HEADER..], keep, take);
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
    fn blend(into: &mut [f32], from: &[f32], keep: f32, take: f32) {
        for (into, from) in into.iter_mut().zip(from) {
            *into = *into * keep + from * take;
        }
    }
}
