//! Intended send times of an open loop, computed ahead. Pure.

use std::time::Duration;

use super::random::Random;

/// How requests arrive.
#[derive(Clone, Debug, PartialEq)]
pub enum Arrivals {
    /// All at the start.
    AtOnce,
    /// One every so often.
    Every(Duration),
    /// One `Duration` after the previous one was handed over, as the seed's `relative` schedule: it
    /// drifts when the client is slow, and hides that lag.
    AfterPrevious(Duration),
    /// Gaps of a gamma distribution: `burstiness` is its shape, 1 = Poisson, smaller = burstier.
    Random {
        /// Requests per second.
        rate: f64,
        /// Shape of the gaps.
        burstiness: f64,
    },
    /// The rate grows (or falls) evenly from one to the other over a time, then stays.
    Ramp {
        /// Requests per second at the start.
        from: f64,
        /// Requests per second at the end.
        to: f64,
        /// Seconds in between.
        over: f64,
    },
    /// The rate changes at once after a time.
    Step {
        /// Requests per second before.
        from: f64,
        /// Requests per second after.
        to: f64,
        /// Seconds until the change.
        at: f64,
    },
    /// Times of a recorded trace, ns from its first request.
    Trace(Vec<i64>),
}

impl Arrivals {
    /// Intended times of `n` requests in ns from the start of the run, in order.
    pub fn times(&self, n: usize, seed: u64) -> Vec<i64> {
        match self {
            Self::AtOnce => vec![0; n],
            Self::Every(gap) | Self::AfterPrevious(gap) => {
                (0..n as i64).map(|i| i.saturating_mul(gap.as_nanos() as i64)).collect()
            }
            Self::Random { rate, burstiness } => {
                let mut random = Random::new(seed);
                let mut at = 0.0;
                let times = (0..n).map(|_| {
                    let now = at;
                    at += random.gamma_of_mean_one(*burstiness) / rate;
                    seconds(now)
                });
                times.collect()
            }
            Self::Ramp { from, to, over } => {
                (0..n).map(|i| seconds(ramp_time(i as f64, *from, *to, *over))).collect()
            }
            Self::Step { from, to, at } => {
                let before = from * at;
                let time = |i: f64| if i < before { i / from } else { at + (i - before) / to };
                (0..n).map(|i| seconds(time(i as f64))).collect()
            }
            Self::Trace(times) => times.iter().copied().take(n).collect(),
        }
    }
}

/// When the `i`-th request of a ramp is due: the time at which the integral of the rate reaches `i`.
fn ramp_time(i: f64, from: f64, to: f64, over: f64) -> f64 {
    let during = (from + to) / 2.0 * over;
    if i > during {
        return over + (i - during) / to;
    }
    let slope = (to - from) / over;
    if slope == 0.0 { i / from } else { ((from * from + 2.0 * slope * i).sqrt() - from) / slope }
}

fn seconds(s: f64) -> i64 {
    (s * 1e9) as i64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn in_order(times: &[i64]) -> bool {
        times.is_sorted() && times[0] >= 0
    }

    #[test]
    fn a_poisson_load_has_its_rate_and_a_gamma_load_its_burstiness() {
        for (burstiness, cv) in [(1.0, 1.0), (0.25, 2.0), (4.0, 0.5)] {
            let times = Arrivals::Random { rate: 50.0, burstiness }.times(20_000, 3);
            assert!(in_order(&times));
            let gaps: Vec<f64> = times.windows(2).map(|w| (w[1] - w[0]) as f64 / 1e9).collect();
            let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
            let variance = gaps.iter().map(|g| (g - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
            assert!((mean * 50.0 - 1.0).abs() < 0.05, "mean gap {mean}");
            assert!((variance.sqrt() / mean - cv).abs() < 0.1, "CV {} of {cv}", variance.sqrt() / mean);
        }
    }

    #[test]
    fn the_same_seed_gives_the_same_load() {
        let load = Arrivals::Random { rate: 10.0, burstiness: 1.0 };
        assert_eq!(load.times(100, 5), load.times(100, 5));
        assert_ne!(load.times(100, 5), load.times(100, 6));
    }

    #[test]
    fn a_ramp_sends_its_mean_rate_while_it_lasts_and_its_last_rate_after() {
        let times = Arrivals::Ramp { from: 10.0, to: 30.0, over: 10.0 }.times(500, 0);
        assert!(in_order(&times));
        assert_eq!(times.iter().filter(|&&t| t < 10_000_000_000).count(), 200);
        assert_eq!(times[331] - times[301], 1_000_000_000);
    }

    #[test]
    fn a_step_changes_the_rate_at_its_time() {
        let times = Arrivals::Step { from: 2.0, to: 20.0, at: 5.0 }.times(50, 0);
        assert!(in_order(&times));
        assert_eq!(times.iter().filter(|&&t| t < 5_000_000_000).count(), 10);
        assert_eq!(times[31] - times[11], 1_000_000_000);
    }

    #[test]
    fn a_trace_keeps_its_order_and_its_ties() {
        assert_eq!(Arrivals::Trace(vec![0, 5, 5, 9]).times(3, 0), [0, 5, 5]);
    }
}
