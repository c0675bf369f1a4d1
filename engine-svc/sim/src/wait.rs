//! Why a sequence waited in the engine: behind decode forwards that `decode_first` put ahead of its prefill, or
//! behind other work.

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
}
