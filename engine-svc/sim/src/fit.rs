//! A cost model from forwards that really ran: least squares of relative errors, no coefficient below zero.
//!
//! Forwards of one budget are often all alike, and then say little about each coefficient. What they leave open is
//! settled by a weak prior: a prompt token costs what a decode row does, and a fixed part is shared evenly.
//!
//! - [`Fitter`]: takes forwards one by one, may forget old ones, gives a [`CostModel`] at any time
//! - [`fit`]: all forwards at once, each weighted by what it is expected to take
//! - [`Quality`]: how well a cost model tells the forwards it was made from

use std::{collections::BTreeSet, time::Duration};

use crate::cost::{CostModel, Load};

mod least_squares;

use least_squares::Normal;

/// A forward that ran.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Observed {
    /// What it held.
    pub load: Load,
    /// The size that its decode rows were padded to; the rows themselves when they were not.
    pub bucket: usize,
    /// How long it took.
    pub took: Duration,
}

impl Observed {
    /// Whether it held prompt rows.
    pub fn prefills(&self) -> bool {
        self.load.prefill_rows > 0
    }

    fn us(&self) -> f64 {
        self.took.as_secs_f64() * 1e6
    }
}

/// Prefill: 1, rows, tokens, attended, and decode rows that ran along. Decode: 1, bucket, attended.
const PREFILL: usize = 5;
const DECODE: usize = 3;

/// Collects forwards.
#[derive(Debug, Clone, Default)]
pub struct Fitter {
    prefill: Normal<PREFILL>,
    decode: Normal<DECODE>,
    buckets: BTreeSet<u32>,
    padded: bool,
}

impl Fitter {
    /// Takes in a forward; `expected` is how long it should take, when that is known. Earlier ones of its kind count
    /// `keep` times as much from now on: 1, or less to forget them.
    pub fn add(&mut self, forward: &Observed, expected: Option<Duration>, keep: f64) {
        let us = expected.map_or(forward.us(), |expected| expected.as_secs_f64() * 1e6);
        if us <= 0.0 || forward.took.is_zero() {
            return;
        }
        let Load { prefill_rows, prefill_tokens, decode_rows, attended } = forward.load;
        if forward.prefills() {
            let x = [1, prefill_rows, prefill_tokens, attended, decode_rows].map(|x| x as f64);
            self.prefill.scale(keep);
            self.prefill.add(x, forward.us(), 1.0 / us);
        } else if decode_rows > 0 {
            self.padded |= forward.bucket != decode_rows;
            self.buckets.insert(forward.bucket as u32);
            self.decode.scale(keep);
            self.decode.add([1, forward.bucket, attended].map(|x| x as f64), forward.us(), 1.0 / us);
        }
    }

    /// Forwards taken in, as they count: prefill and decode.
    pub fn weights(&self) -> (f64, f64) {
        (self.prefill.weight(), self.decode.weight())
    }

    /// The cost model that tells them best; `None` before there is a forward of each kind.
    pub fn cost(&self) -> Option<CostModel> {
        let [decode_base_us, decode_row_us, decode_attend_us] = self.decode.solve([0.0; DECODE])?;
        let prior = [decode_base_us, 0.0, decode_row_us, decode_attend_us, decode_row_us];
        let [base, row, token, attend, _] = self.prefill.solve(prior)?;
        Some(CostModel {
            prefill_base_us: base,
            prefill_row_us: row,
            prefill_token_us: token,
            prefill_attend_us: attend,
            decode_base_us,
            decode_row_us,
            decode_attend_us,
            buckets: if self.padded { self.all_buckets() } else { Vec::new() },
            scale: 1.0,
        })
    }

    /// The sizes seen, and below the least of them powers of two, as engines capture them.
    fn all_buckets(&self) -> Vec<u32> {
        let least = self.buckets.first().copied().unwrap_or(1);
        let below = (0..u32::BITS).map(|i| 1 << i).take_while(|size| *size < least);
        below.chain(self.buckets.iter().copied()).collect()
    }
}

/// The cost model that tells `forwards` best. Each is weighted by what it is expected to take and not by what it
/// took, or a forward that was held up would count for less and the model would be too fast.
pub fn fit<'a>(forwards: impl IntoIterator<Item = &'a Observed> + Clone) -> Option<CostModel> {
    let mut expected: Option<CostModel> = None;
    for _ in 0..3 {
        let mut fitter = Fitter::default();
        for forward in forwards.clone() {
            fitter.add(forward, expected.as_ref().map(|cost| cost.forward(forward.load)), 1.0);
        }
        expected = Some(fitter.cost()?);
    }
    expected
}

/// How well a cost model tells forwards of one kind.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Quality {
    /// How many there were.
    pub forwards: usize,
    /// Share of the variance that the model explains; 0 where all took the same time.
    pub r2: f64,
    /// Mean of |took − told| / told.
    pub relative_error: f64,
    /// The same at the 95th percentile.
    pub relative_error_p95: f64,
}

impl Quality {
    /// The quality over `forwards`.
    pub fn of<'a>(cost: &CostModel, forwards: impl IntoIterator<Item = &'a Observed>) -> Self {
        let pairs: Vec<(f64, f64)> = forwards
            .into_iter()
            .map(|forward| (forward.us(), cost.forward(forward.load).as_secs_f64() * 1e6))
            .filter(|(_, told)| *told > 0.0)
            .collect();
        let n = pairs.len() as f64;
        let mean = pairs.iter().map(|(took, _)| took).sum::<f64>() / n.max(1.0);
        let squares = |deviation: fn(f64, f64, f64) -> f64| -> f64 {
            pairs.iter().map(|&(took, told)| deviation(took, told, mean).powi(2)).sum()
        };
        let total = squares(|took, _, mean| took - mean);
        let left = squares(|took, told, _| took - told);
        let mut errors: Vec<f64> = pairs.iter().map(|(took, told)| (took / told - 1.0).abs()).collect();
        errors.sort_by(f64::total_cmp);
        Self {
            forwards: pairs.len(),
            r2: if total > 0.0 { 1.0 - left / total } else { 0.0 },
            relative_error: errors.iter().sum::<f64>() / n.max(1.0),
            relative_error_p95: errors.get((n * 0.95) as usize).copied().unwrap_or_default(),
        }
    }
}

#[cfg(test)]
mod tests;
