//! What a core does while its tiles multiply: a little in each turn of k, so that it costs next to nothing.
//!
//! It fetches the weights that come next, fetches the outputs to be written (what no cache has is stored slowly), and
//! activates what an earlier pair of strips gave.
//!
//! Contract: see [`StripPair`].

use std::ops::Range;

use super::{ROWS, WEIGHT_STRIDE};
use crate::linear::float::operand::put_gated;
use crate::linear::strips::{STRIP, StripPair};
use crate::prefetch;

/// Rows of outputs fetched, and rows activated, in one turn: all 32 within 16 turns.
const ROWS_A_TURN: usize = 2;

pub(super) struct Meanwhile<'a> {
    pair: &'a StripPair,
    /// The row of weights that this turn fetches first, of both strips.
    weights: [*const u8; 2],
    outputs: Range<usize>,
    activated: usize,
}

impl<'a> Meanwhile<'a> {
    pub(super) fn of(pair: &'a StripPair) -> Meanwhile<'a> {
        let skipped = pair.ahead.start * WEIGHT_STRIDE;
        // What lies strip by strip is in memory of the thread's own, which is in the cache.
        let is_elsewhere = pair.ends && pair.y_stride > STRIP;
        Meanwhile {
            pair,
            weights: pair.strips.each_ref().map(|strip| strip.next.wrapping_add(skipped)),
            outputs: 0..if is_elsewhere { pair.rows } else { 0 },
            activated: 0,
        }
    }

    /// One turn.
    ///
    /// # Safety
    /// As [`StripPair`] says of what is gated, on a machine with AVX512-BF16.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512bf16")]
    pub(super) unsafe fn turn(&mut self) {
        for row in 0..self.pair.ahead.len() {
            for weights in self.weights {
                prefetch::line(weights.wrapping_add(row * WEIGHT_STRIDE));
            }
        }
        self.weights = self.weights.map(|weights| weights.wrapping_add(ROWS * WEIGHT_STRIDE));
        for row in self.outputs.by_ref().take(ROWS_A_TURN) {
            for strip in &self.pair.strips {
                prefetch::line_to_write(strip.y.wrapping_add(row * self.pair.y_stride).cast());
            }
        }
        if self.activated + ROWS_A_TURN <= self.pair.gated.rows {
            // SAFETY: passed on.
            unsafe { put_gated(&self.pair.gated, self.activated..self.activated + ROWS_A_TURN) };
            self.activated += ROWS_A_TURN;
        }
    }

    /// Activates what is left after the last turn.
    ///
    /// # Safety
    /// As [`Meanwhile::turn`].
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512bf16")]
    pub(super) unsafe fn end(self) {
        // SAFETY: passed on.
        unsafe { put_gated(&self.pair.gated, self.activated..self.pair.gated.rows) };
    }
}
