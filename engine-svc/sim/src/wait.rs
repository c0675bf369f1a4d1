//! Why a sequence waited in the engine: behind decode forwards that `decode_first` put ahead of its prefill, or
//! behind other work. Per sequence once it has begun ([`EngineWait`]), and over all of them while they wait
//! ([`Blocked`]).

use std::collections::VecDeque;

/// Forwards that are remembered one by one: an arrival is stamped a little before the step loop takes it in.
pub const REMEMBERED: usize = 4096;

/// Time spent in decode forwards that ran ahead of a prefill because of `decode_first`, as a function of time.
#[derive(Debug, Default)]
pub struct DecodeFirstClock {
    total: i64,
    recent: VecDeque<(i64, i64)>,
}

impl DecodeFirstClock {
    /// A forward ran from `start` to `end`, ns, because of `decode_first`. Calls come in order of time.
    pub fn ran(&mut self, start: i64, end: i64) {
        self.total += end - start;
        if self.recent.len() == REMEMBERED {
            self.recent.pop_front();
        }
        self.recent.push_back((start, end));
    }

    /// Cumulative time at `at`, ns; exact as far back as the last [`REMEMBERED`] forwards.
    pub fn at(&self, at: i64) -> i64 {
        let later = self.recent.iter().rev().take_while(|&&(_, end)| end > at);
        self.total - later.map(|&(start, end)| end - start.max(at)).sum::<i64>()
    }
}

/// A wait split by cause; the parts sum to it exactly.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EngineWait {
    /// Behind decode forwards that `decode_first` put ahead, ns.
    pub decode_first: i64,
    /// Behind anything else, the wake-up of the step loop included, ns.
    pub engine_busy: i64,
}

impl EngineWait {
    /// The wait from `received` to `admitted` (ns), given the clock's readings at both.
    pub fn split(received: i64, admitted: i64, at_received: i64, at_admitted: i64) -> Self {
        let decode_first = at_admitted - at_received;
        Self { decode_first, engine_busy: admitted - received - decode_first }
    }
}

/// Time that sequences have waited in the engine, over all of them, by cause. Advances while they wait, so that an
/// engine that is stuck shows. Calls come in order of time, in ns.
#[derive(Debug, Clone, Copy, Default)]
pub struct Blocked {
    decode_first: i64,
    engine_busy: i64,
    waiting: i64,
    as_of: i64,
    behind_decode_first: bool,
}

impl Blocked {
    /// A sequence was taken in at `now`, having waited so long already.
    pub fn arrived(&mut self, now: i64, so_far: EngineWait) {
        self.advance(now);
        self.decode_first += so_far.decode_first;
        self.engine_busy += so_far.engine_busy;
        self.waiting += 1;
    }

    /// One of them waits no more from `now` on: it begins, or is gone.
    pub fn left(&mut self, now: i64) {
        self.advance(now);
        self.waiting -= 1;
    }

    /// From `now` on a decode forward runs that `decode_first` put ahead; or no longer.
    pub fn behind_decode_first(&mut self, now: i64, yes: bool) {
        self.advance(now);
        self.behind_decode_first = yes;
    }

    /// The totals as they are at `now`.
    pub fn at(mut self, now: i64) -> EngineWait {
        self.advance(now);
        EngineWait { decode_first: self.decode_first, engine_busy: self.engine_busy }
    }

    fn advance(&mut self, now: i64) {
        let waited = self.waiting * (now - self.as_of);
        match self.behind_decode_first {
            true => self.decode_first += waited,
            false => self.engine_busy += waited,
        }
        self.as_of = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_overlap_with_a_decode_put_ahead_is_charged_to_decode_first() {
        let mut clock = DecodeFirstClock::default();
        clock.ran(100, 200);
        let received = clock.at(150);
        clock.ran(250, 300);
        let wait = EngineWait::split(150, 310, received, clock.at(310));
        assert_eq!(wait, EngineWait { decode_first: 50 + 50, engine_busy: 160 - 100 });
    }

    #[test]
    fn what_is_forgotten_still_counts_for_later_readings() {
        let mut clock = DecodeFirstClock::default();
        for i in 0..2 * REMEMBERED as i64 {
            clock.ran(10 * i, 10 * i + 4);
        }
        assert_eq!(clock.at(20 * REMEMBERED as i64), 8 * REMEMBERED as i64);
    }

    #[test]
    fn blocked_time_advances_live_and_ends_at_the_sum_of_the_waits() {
        let (mut clock, mut blocked) = (DecodeFirstClock::default(), Blocked::default());
        let nothing = EngineWait { decode_first: 0, engine_busy: 5 };
        blocked.arrived(105, nothing);
        blocked.behind_decode_first(110, true);
        assert_eq!(blocked.at(115), EngineWait { decode_first: 5, engine_busy: 10 });
        clock.ran(110, 130);
        blocked.behind_decode_first(130, false);
        blocked.left(140);
        let wait = EngineWait::split(100, 140, clock.at(100), clock.at(140));
        assert_eq!(blocked.at(1000), wait);
    }
}
