//! How fast one clock may run against another.

/// The largest slew that NTP clients apply by default. A rate can change by as much within any moment, and nothing can
/// be seen of that until long after when the way is long: so nothing less is assumed, however steady the rate was.
const MAX_DRIFT_PPB: i64 = 500_000;
/// What differs by more than this is no rate: a clock was set.
const MAX_BELIEVED_PPB: i64 = 50_000_000;
const BILLION: i128 = 1_000_000_000;

/// Interval that holds the drift at any moment, parts per billion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rate {
    low: i64,
    high: i64,
}

impl Rate {
    /// What is assumed of clocks that contradict nothing.
    pub const ASSUMED: Self = Self { low: -MAX_DRIFT_PPB, high: MAX_DRIFT_PPB };

    /// What is assumed of a clock that gained `rise` within `ns`; `None` when no clock runs that fast.
    pub fn of(rise: i64, ns: i64) -> Option<Self> {
        let ppb = (i128::from(rise) * BILLION).checked_div(i128::from(ns))?;
        let ppb = i64::try_from(ppb).ok().filter(|ppb| ppb.abs() <= MAX_BELIEVED_PPB)?;
        Some(match ppb.abs() <= MAX_DRIFT_PPB {
            true => Self::ASSUMED,
            false => Self { low: ppb - MAX_DRIFT_PPB, high: ppb + MAX_DRIFT_PPB },
        })
    }

    /// Largest change of the offset over `ns` (negative: back in time).
    pub fn most(self, ns: i64) -> i64 {
        -gained(ns, if ns >= 0 { -self.high } else { -self.low })
    }

    /// Smallest change of the offset over `ns`.
    pub fn least(self, ns: i64) -> i64 {
        gained(ns, if ns >= 0 { self.low } else { self.high })
    }
}

/// Rounded down.
fn gained(ns: i64, ppb: i64) -> i64 {
    (i128::from(ns) * i128::from(ppb)).div_euclid(BILLION) as i64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_rounded_outward() {
        assert_eq!((Rate::ASSUMED.least(1), Rate::ASSUMED.most(1)), (-1, 1));
        assert_eq!((Rate::ASSUMED.least(-2_000), Rate::ASSUMED.most(-2_000)), (-1, 1));
        assert_eq!((Rate::ASSUMED.least(0), Rate::ASSUMED.most(0)), (0, 0));
    }

    #[test]
    fn a_rate_is_believed_when_measured_but_no_jump_is_taken_for_one() {
        assert_eq!(Rate::of(300, 1_000_000), Some(Rate::ASSUMED));
        assert_eq!(Rate::of(-5_000, 1_000_000), Some(Rate { low: -5_500_000, high: -4_500_000 }));
        assert_eq!(Rate::of(1_000_000, 1_000_000), None);
        assert_eq!(Rate::of(1, 0), None);
    }
}
