//! How fast the queue drains, and from it when a refused client should come back.

use std::{collections::VecDeque, time::Duration};

use firstlight_proto::clock::Stamp;

const BUCKET: i64 = 1_000_000_000;
const BUCKETS: usize = 8;
const SHORTEST: Duration = Duration::from_millis(10);
const LONGEST: Duration = Duration::from_secs(30);

/// Counts requests that leave the queue, over the last seconds.
#[derive(Debug)]
pub(super) struct Drain {
    started: Stamp,
    /// Start of each bucket that counted something, and its count; the last one is being filled.
    buckets: VecDeque<(i64, u64)>,
    /// The place in time that was last given to a refused client.
    promised: Stamp,
}

impl Drain {
    pub fn new(now: Stamp) -> Self {
        Self { started: now, buckets: VecDeque::with_capacity(BUCKETS), promised: now }
    }

    /// `requests` left the queue.
    pub fn count(&mut self, now: Stamp, requests: u64) {
        let start = now.ns().div_euclid(BUCKET);
        match self.buckets.back_mut() {
            Some((bucket, count)) if *bucket == start => *count += requests,
            _ => {
                self.buckets.push_back((start, requests));
                if self.buckets.len() > BUCKETS {
                    self.buckets.pop_front();
                }
            }
        }
    }

    /// Requests per second.
    pub fn rate(&self, now: Stamp) -> f64 {
        let window = BUCKET * BUCKETS as i64;
        let newest = now.ns().div_euclid(BUCKET);
        let left: u64 =
            self.buckets.iter().filter(|(b, _)| newest - b < BUCKETS as i64).map(|(_, count)| count).sum();
        let elapsed = now.since(self.started).clamp(1, window);
        left as f64 * BUCKET as f64 / elapsed as f64
    }

    /// When the next refused client should try again: each is given its own place in the drain, so
    /// that they do not all come back at once to be refused once more.
    pub fn retry_after(&mut self, now: Stamp) -> Duration {
        let rate = self.rate(now);
        if rate <= 0.0 {
            return LONGEST;
        }
        let place = Duration::from_secs_f64((1.0 / rate).min(LONGEST.as_secs_f64()));
        self.promised = (self.promised.max(now) + place).min(now + LONGEST);
        self.promised.saturating_since(now).max(SHORTEST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn second(s: i64) -> Stamp {
        Stamp::from_ns(s * BUCKET)
    }

    #[test]
    fn the_rate_is_that_of_the_last_seconds() {
        let mut drain = Drain::new(second(0));
        (0..20).for_each(|s| drain.count(second(s), 100));
        let rate = drain.rate(second(19));
        assert!((90.0..=110.0).contains(&rate), "{rate}");
        assert_eq!(drain.rate(second(40)), 0.0);
    }

    #[test]
    fn refused_clients_are_spread_over_the_drain() {
        let mut drain = Drain::new(second(0));
        (0..8).for_each(|s| drain.count(second(s), 10));
        let delays: Vec<_> = (0..5).map(|_| drain.retry_after(second(7))).collect();
        assert!(delays.windows(2).all(|pair| pair[0] < pair[1]), "{delays:?}");
        assert!(delays[4] < Duration::from_secs(1), "{delays:?}");
    }

    #[test]
    fn a_queue_that_does_not_drain_sends_clients_far_away() {
        assert_eq!(Drain::new(second(0)).retry_after(second(5)), LONGEST);
    }
}
