//! How long a forward takes. Live, the sim backend sleeps by it; in a replay it is added up in virtual time.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::planner::{ForwardKind, ForwardPlan};

/// Whatever tells how long a forward takes: a [`CostModel`], or one with noise around it.
pub trait Cost {
    /// How long the next forward takes; it has this load.
    fn next(&mut self, load: Load) -> Duration;
}

impl Cost for CostModel {
    fn next(&mut self, load: Load) -> Duration {
        self.forward(load)
    }
}

/// A linear model of forward time. A prefill forward costs
/// `prefill_base + rows · prefill_row + tokens · prefill_token + attended · prefill_attend`, a decode forward
/// `decode_base + bucket · decode_row + attended · decode_attend`, where `attended` counts pairs of a token and a
/// position it looks at. A mixed forward costs a prefill forward plus its decode rows. All in microseconds, then
/// scaled.
///
/// The defaults give the shape of a small model on a data-centre GPU: 16 short prompts in about 10 ms, 64 decode
/// rows in about 5 ms.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CostModel {
    /// Fixed cost of a prefill forward, µs.
    pub prefill_base_us: f64,
    /// Cost of each chunk, µs.
    pub prefill_row_us: f64,
    /// Cost of each prompt token, µs.
    pub prefill_token_us: f64,
    /// Fixed cost of a decode forward, µs.
    pub decode_base_us: f64,
    /// Cost of each row of the bucket, padding included, µs.
    pub decode_row_us: f64,
    /// Cost of each pair of a token and a position it attends to, in forwards that hold prompt rows, µs.
    pub prefill_attend_us: f64,
    /// The same in decode forwards, µs.
    pub decode_attend_us: f64,
    /// Sizes that decode forwards are padded to, ascending. Empty: no padding.
    pub buckets: Vec<u32>,
    /// Factor on everything; 0 makes forwards free.
    pub scale: f64,
}

impl Default for CostModel {
    fn default() -> Self {
        Self {
            prefill_base_us: 8000.0,
            prefill_row_us: 100.0,
            prefill_token_us: 6.0,
            decode_base_us: 3500.0,
            decode_row_us: 20.0,
            prefill_attend_us: 0.002,
            decode_attend_us: 0.002,
            buckets: vec![1, 2, 4, 8, 16, 32, 64, 128, 256],
            scale: 1.0,
        }
    }
}

/// What of a forward determines its cost.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Load {
    /// Chunks of prompts.
    pub prefill_rows: usize,
    /// Prompt tokens.
    pub prefill_tokens: usize,
    /// Decode rows.
    pub decode_rows: usize,
    /// Pairs of a token and a position it attends to, over all rows.
    pub attended: usize,
}

impl Load {
    /// Adds `len` tokens of one sequence from position `start` on; more than one token, or `prompt`, is a chunk.
    pub fn add(&mut self, start: usize, len: usize, prompt: bool) {
        if prompt {
            self.prefill_rows += 1;
            self.prefill_tokens += len;
        } else {
            self.decode_rows += 1;
        }
        // Token k of the chunk attends to start + k + 1 positions.
        self.attended += len * start + len * (len + 1) / 2;
    }
}

impl From<&ForwardPlan> for Load {
    fn from(plan: &ForwardPlan) -> Self {
        let mut load = Self::default();
        for row in &plan.rows {
            load.add(row.start, row.len, row.prompt);
        }
        load
    }
}

impl CostModel {
    /// A model whose forwards take no time.
    pub fn free() -> Self {
        Self { scale: 0.0, ..Self::default() }
    }

    /// The size that `rows` decode rows are padded to.
    pub fn bucket(&self, rows: usize) -> usize {
        self.buckets.iter().map(|&bucket| bucket as usize).find(|&bucket| bucket >= rows).unwrap_or(rows)
    }

    /// How long a forward with this load takes.
    pub fn forward(&self, load: Load) -> Duration {
        let attended = load.attended as f64;
        let us = if load.prefill_rows > 0 {
            self.prefill_base_us
                + load.prefill_rows as f64 * self.prefill_row_us
                + load.prefill_tokens as f64 * self.prefill_token_us
                + load.decode_rows as f64 * self.decode_row_us
                + attended * self.prefill_attend_us
        } else if load.decode_rows > 0 {
            self.decode_base_us
                + self.bucket(load.decode_rows) as f64 * self.decode_row_us
                + attended * self.decode_attend_us
        } else {
            0.0
        };
        Duration::try_from_secs_f64(us * self.scale / 1e6).unwrap_or(Duration::ZERO)
    }

    /// The size a forward of `kind` with `rows` rows is padded to.
    pub fn padded(&self, kind: ForwardKind, rows: usize) -> usize {
        if kind == ForwardKind::Decode { self.bucket(rows) } else { rows }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decode(rows: usize, position: usize) -> Load {
        let mut load = Load::default();
        for _ in 0..rows {
            load.add(position, 1, false);
        }
        load
    }

    #[test]
    fn decode_rows_cost_the_bucket_they_are_padded_to() {
        let cost = CostModel { decode_attend_us: 0.0, ..CostModel::default() };
        assert_eq!(cost.forward(decode(33, 0)), cost.forward(decode(64, 0)));
        assert!(cost.forward(decode(32, 0)) < cost.forward(decode(33, 0)));
        assert_eq!(cost.bucket(1000), 1000, "beyond the largest bucket nothing is padded");
    }

    #[test]
    fn a_longer_context_costs_more() {
        let cost = CostModel::default();
        assert!(cost.forward(decode(8, 4000)) > cost.forward(decode(8, 10)));
    }

    #[test]
    fn a_prompt_attends_to_the_same_pairs_however_it_is_chunked() {
        let (mut whole, mut parts) = (Load::default(), Load::default());
        whole.add(0, 100, true);
        parts.add(0, 30, true);
        parts.add(30, 70, true);
        assert_eq!(whole.attended, parts.attended);
        assert_eq!(whole.attended, 100 * 101 / 2);
    }

    #[test]
    fn scale_zero_makes_forwards_free() {
        assert_eq!(CostModel::free().forward(decode(64, 100)), Duration::ZERO);
    }
}
