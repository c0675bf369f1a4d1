//! Why a sequence waited in the engine: behind decode forwards that `decode_first` put ahead of its prefill, or
//! behind other work.

use std::collections::VecDeque;

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
        self.recent.push_back((start, end));
    }

    /// Cumulative time at `at`, ns, which is not earlier than the last [`DecodeFirstClock::forget_before`].
    pub fn at(&self, at: i64) -> i64 {
        let later: i64 = self.recent.iter().map(|&(start, end)| (end - start.max(at)).max(0)).sum();
        self.total - later
    }

    /// No reading before `at` will be asked for any more.
    pub fn forget_before(&mut self, at: i64) {
        while self.recent.front().is_some_and(|&(_, end)| end <= at) {
            self.recent.pop_front();
        }
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
    fn forgetting_the_past_keeps_later_readings() {
        let mut clock = DecodeFirstClock::default();
        clock.ran(0, 10);
        clock.ran(20, 40);
        let before = clock.at(30);
        clock.forget_before(30);
        assert_eq!(clock.at(30), before);
        assert_eq!(clock.at(50), 30);
    }
}
