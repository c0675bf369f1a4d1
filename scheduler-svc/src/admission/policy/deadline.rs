//! `deadline`: earliest deadline first, among requests that can still make it. What cannot have its first
//! token by its deadline is refused before it costs a prefill.

use std::time::Duration;

use firstlight_proto::clock::Stamp;

use super::super::{
    report::Forward,
    request::{Request, Tokens},
};

/// How long engines take for a prefill, learned from their forwards: a line through (tokens, time),
/// older forwards counting less. Everything but the prefill itself (waiting, decoding) is left out, so a
/// request is refused only when even the best case is too late.
#[derive(Debug, Default)]
pub(in super::super) struct PrefillSpeed {
    weight: f64,
    tokens: f64,
    time: f64,
    tokens_squared: f64,
    tokens_time: f64,
}

/// What is left of a forward's weight after the next one.
const MEMORY: f64 = 0.98;

impl PrefillSpeed {
    /// Learns from a forward.
    pub fn learn(&mut self, forward: &Forward) {
        let (tokens, time) =
            (f64::from(forward.prefill_tokens.0), forward.end.since(forward.start).max(0) as f64);
        if tokens == 0.0 {
            return;
        }
        for (sum, value) in [
            (&mut self.weight, 1.0),
            (&mut self.tokens, tokens),
            (&mut self.time, time),
            (&mut self.tokens_squared, tokens * tokens),
            (&mut self.tokens_time, tokens * time),
        ] {
            *sum = *sum * MEMORY + value;
        }
    }

    /// Expected time of a prefill of so many tokens; zero before anything was learned.
    pub fn estimate(&self, tokens: Tokens) -> Duration {
        if self.weight == 0.0 {
            return Duration::ZERO;
        }
        let (mean_tokens, mean_time) = (self.tokens / self.weight, self.time / self.weight);
        let variance = self.tokens_squared / self.weight - mean_tokens * mean_tokens;
        let covariance = self.tokens_time / self.weight - mean_tokens * mean_time;
        // Forwards of one size say nothing about the slope: then none is assumed.
        let known = variance > 1e-6 * mean_tokens * mean_tokens;
        let slope = if known { (covariance / variance).max(0.0) } else { 0.0 };
        let time = mean_time + slope * (f64::from(tokens.0) - mean_tokens);
        Duration::from_nanos(time.max(0.0) as u64)
    }
}

/// By how much the first token would miss the deadline if the prefill began now; `None` when it makes it.
pub(in super::super) fn short_by(
    request: &Request,
    to_prefill: Tokens,
    speed: &PrefillSpeed,
    now: Stamp,
) -> Option<Duration> {
    let deadline = request.deadline?;
    let first_token = now + speed.estimate(to_prefill);
    (first_token > deadline).then(|| first_token.saturating_since(deadline))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn forward(tokens: u32, ns: i64) -> Forward {
        let (start, end) = (Stamp::from_ns(0), Stamp::from_ns(ns));
        Forward { start, end, prefill_tokens: Tokens(tokens), decode_rows: 0 }
    }

    #[test]
    fn a_line_is_learned_from_forwards_of_different_sizes() {
        let mut speed = PrefillSpeed::default();
        for tokens in [10, 400, 90, 250, 30] {
            speed.learn(&forward(tokens, 5_000 + 100 * i64::from(tokens)));
        }
        assert_eq!(speed.estimate(Tokens(1_000)).as_nanos().div_ceil(1_000), 105);
    }

    #[test]
    fn forwards_of_one_size_teach_no_slope() {
        let mut speed = PrefillSpeed::default();
        (0..9).for_each(|_| speed.learn(&forward(64, 7_000)));
        assert_eq!(speed.estimate(Tokens(4_096)).as_nanos() / 10, 700);
    }

    #[test]
    fn a_deadline_is_missed_only_when_even_the_prefill_alone_is_too_long() {
        let mut speed = PrefillSpeed::default();
        (0..9).for_each(|_| speed.learn(&forward(64, 1_000)));
        let due = |ns| Request { deadline: Some(Stamp::from_ns(ns)), ..Request::new(Tokens(64), Tokens(8)) };
        assert_eq!(short_by(&due(2_000), Tokens(64), &speed, Stamp::from_ns(900)), None);
        assert!(short_by(&due(2_000), Tokens(64), &speed, Stamp::from_ns(1_100)).is_some());
    }
}
