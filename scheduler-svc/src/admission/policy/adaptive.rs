//! `adaptive`: in order of arrival, with a controller that holds an ITL p99 by moving `step_prefill_tokens`.
//!
//! A chunk of prefill delays the tokens of every row that decodes beside it, so the chunk sets the tail of
//! ITL; and the larger it is, the sooner first tokens come. The controller tracks the quantile itself: a gap
//! over the target shrinks the chunk by 0.99 of a unit (of its logarithm), one within it grows the chunk by
//! 0.01. That stands still exactly when 1 % of the gaps are over the target, which is the largest chunk,
//! and so the least TTFT, that holds the p99.

use std::time::Duration;

use firstlight_proto::clock::Stamp;

use super::super::{
    report::{EngineId, Forward},
    request::Tokens,
};

/// Holds the ITL p99 by moving the chunk.
#[derive(Debug)]
pub(in super::super) struct Controller {
    /// Chunk, tokens.
    chunk: f64,
    /// What was last published: it follows `chunk` in steps, or engines would be told of every token.
    published: Tokens,
    gaps: u64,
    over: u64,
    /// Since the last decode forward of each engine.
    since_decode: Vec<(EngineId, Stamp, u32)>,
}

/// What the controller holds and has seen; for metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ControllerState {
    /// `step_prefill_tokens` in force.
    pub step_prefill_tokens: Tokens,
    /// Gaps between decode forwards that held a prefill in between.
    pub gaps: u64,
    /// Those that were over the target.
    pub over_target: u64,
}

/// Smallest chunk: prefill always goes on.
const LEAST: f64 = 16.0;
/// One unit of the chunk's logarithm: a gap over the target shrinks it by a third.
const UNIT: f64 = 0.4;
const QUANTILE: f64 = 0.99;

impl Controller {
    /// Starts from the largest chunk allowed.
    pub fn new(most: Tokens) -> Self {
        Self { chunk: f64::from(most.0), published: most, gaps: 0, over: 0, since_decode: Vec::new() }
    }

    /// Starts over from the largest chunk allowed. What was counted stays counted: a counter that falls stands still
    /// for whoever scrapes it.
    pub fn restart(&mut self, most: Tokens) {
        *self = Self { gaps: self.gaps, over: self.over, ..Self::new(most) };
    }

    /// Learns from a forward; whether the chunk to use has changed.
    pub fn learn(&mut self, engine: EngineId, forward: &Forward, target: Duration, most: Tokens) -> bool {
        let at = self.since_decode.iter().position(|(id, ..)| *id == engine).unwrap_or_else(|| {
            self.since_decode.push((engine, forward.start, 0));
            self.since_decode.len() - 1
        });
        let (_, last, prefilled) = &mut self.since_decode[at];
        *prefilled = prefilled.saturating_add(forward.prefill_tokens.0);
        if forward.decode_rows == 0 {
            return false;
        }
        let gap = forward.end.saturating_since(*last);
        let prefilled = std::mem::take(prefilled);
        *last = forward.end;
        if prefilled == 0 {
            return false;
        }
        self.gaps += 1;
        let limited = f64::from(prefilled) >= 0.9 * self.chunk;
        if gap > target {
            self.over += 1;
            self.chunk *= (-UNIT * QUANTILE).exp();
        } else if limited {
            // A chunk that was not used up says nothing about a larger one.
            self.chunk *= (UNIT * (1.0 - QUANTILE)).exp();
        }
        self.chunk = self.chunk.clamp(LEAST.min(f64::from(most.0)), f64::from(most.0));
        let drift = self.chunk / f64::from(self.published.0.max(1));
        let changed = !(0.95..=1.05).contains(&drift);
        if changed {
            self.published = Tokens(self.chunk as u32);
        }
        changed
    }

    /// The engine is gone.
    pub fn forget(&mut self, engine: EngineId) {
        self.since_decode.retain(|(id, ..)| *id != engine);
    }

    /// What it holds and has seen.
    pub fn state(&self) -> ControllerState {
        ControllerState { step_prefill_tokens: self.published, gaps: self.gaps, over_target: self.over }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Gaps of an engine that takes 5 µs and 50 ns per prefill token, with a rare slow step.
    fn run(controller: &mut Controller, target: Duration, steps: u64) -> (u64, f64) {
        let (mut now, mut over, mut chunks) = (0, 0, 0.0);
        for step in 0..steps {
            let chunk = controller.state().step_prefill_tokens;
            let noise = (step * 2_654_435_761 % 1_000) as i64;
            let took = 5_000 + 50 * i64::from(chunk.0) + noise * 5;
            let (start, end) = (Stamp::from_ns(now), Stamp::from_ns(now + took));
            let forward = Forward { start, end, prefill_tokens: chunk, decode_rows: 8 };
            over += u64::from(i128::from(took) > target.as_nanos() as i128);
            controller.learn(EngineId(1), &forward, target, Tokens(8_192));
            now += took;
            chunks += f64::from(chunk.0);
        }
        (over, chunks / steps as f64)
    }

    #[test]
    fn the_p99_settles_at_the_target_and_the_chunk_is_not_smaller_than_that_needs() {
        let target = Duration::from_micros(60);
        let mut controller = Controller::new(Tokens(8_192));
        run(&mut controller, target, 2_000);
        let (over, mean_chunk) = run(&mut controller, target, 20_000);
        assert!(over <= 300, "{over} of 20000 gaps over the target");
        assert!(mean_chunk > 500.0, "the chunk could be about 1000 tokens but is {mean_chunk}");
    }

    #[test]
    fn prefills_that_no_decode_follows_overflow_nothing() {
        let mut controller = Controller::new(Tokens(8_192));
        let now = Stamp::from_ns(0);
        let most = Tokens(u32::MAX);
        let forward = Forward { start: now, end: now, prefill_tokens: most, decode_rows: 0 };
        for decode_rows in [0, 0, 1] {
            controller.learn(EngineId(1), &Forward { decode_rows, ..forward }, Duration::ZERO, Tokens(8_192));
        }
        assert_eq!(controller.state().gaps, 1);
    }

    #[test]
    fn a_controller_that_starts_over_goes_on_counting() {
        let target = Duration::from_micros(60);
        let mut controller = Controller::new(Tokens(8_192));
        run(&mut controller, target, 100);
        let before = controller.state();
        controller.restart(Tokens(512));
        assert_eq!(controller.state(), ControllerState { step_prefill_tokens: Tokens(512), ..before });
        run(&mut controller, target, 100);
        assert!(before.over_target > 0 && controller.state().gaps == 2 * before.gaps);
    }

    #[test]
    fn a_target_that_cannot_be_held_leaves_the_least_chunk_not_none() {
        let mut controller = Controller::new(Tokens(8_192));
        run(&mut controller, Duration::from_nanos(1), 200);
        assert_eq!(controller.state().step_prefill_tokens, Tokens(16));
    }
}
