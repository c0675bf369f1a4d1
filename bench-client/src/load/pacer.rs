//! A thread that wakes at each intended time. tokio's timer wheel turns once a millisecond; a thread of
//! its own with the smallest timer slack, which spins the last stretch, is right to tens of microseconds.

use std::{num::NonZeroU64, time::Duration};

use firstlight_proto::clock::{Clock, Stamp};
use tokio_util::sync::CancellationToken;

/// Spun instead of slept, since waking up takes about this long.
const SPIN: Duration = Duration::from_micros(60);
/// Longest sleep between two looks at `stop`.
const LOOK_UP: Duration = Duration::from_millis(50);

/// When requests are due.
#[derive(Clone, Debug, PartialEq)]
pub enum Due {
    /// At these times from the start, ns.
    At(Vec<i64>),
    /// `count` requests, each so long after the previous one was fired.
    AfterPrevious {
        /// How many.
        count: usize,
        /// The gap.
        gap: Duration,
    },
}

/// Calls `fire(index, intended)` at each intended time, in order, on this thread; ends early on `stop`.
/// Returns how many were fired.
pub fn pace(
    clock: Clock,
    start: Stamp,
    due: &Due,
    stop: &CancellationToken,
    mut fire: impl FnMut(usize, Stamp),
) -> usize {
    // Without the right to change it the kernel's default slack (50 µs) stays; the lag is measured anyway.
    let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
    match due {
        Due::At(times) => {
            for (index, &ns) in times.iter().enumerate() {
                let intended = start + Duration::from_nanos(ns.unsigned_abs());
                if !wait_until(clock, intended, stop) {
                    return index;
                }
                fire(index, intended);
            }
            times.len()
        }
        Due::AfterPrevious { count, gap } => {
            let mut intended = start;
            for index in 0..*count {
                if !wait_until(clock, intended, stop) {
                    return index;
                }
                fire(index, intended);
                intended = clock.now() + *gap;
            }
            *count
        }
    }
}

/// False when `stop` came first.
fn wait_until(clock: Clock, at: Stamp, stop: &CancellationToken) -> bool {
    loop {
        if stop.is_cancelled() {
            return false;
        }
        let left = clock.until(at);
        if left.is_zero() {
            return true;
        }
        if left > SPIN {
            std::thread::sleep((left - SPIN).min(LOOK_UP));
        } else {
            std::hint::spin_loop();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_fired_before_its_time_and_all_in_order() {
        let clock = Clock::new();
        let start = clock.now();
        let due = Due::At((0..50).map(|i| i * 200_000).collect());
        let mut fired = Vec::new();
        let n = pace(clock, start, &due, &CancellationToken::new(), |i, at| fired.push((i, at, clock.now())));
        assert_eq!(n, 50);
        for (i, (index, intended, now)) in fired.into_iter().enumerate() {
            assert_eq!((index, intended), (i, start + Duration::from_micros(200 * i as u64)));
            assert!(now >= intended);
        }
    }

    #[test]
    fn a_stop_ends_a_long_wait() {
        let stop = CancellationToken::new();
        stop.cancel();
        let clock = Clock::new();
        let due = Due::At(vec![0, 3_600_000_000_000]);
        assert_eq!(pace(clock, clock.now(), &due, &stop, |_, _| {}), 0);
    }
}
