//! The one way to read time. Raw `Instant` and `SystemTime` reads are banned elsewhere (clippy.toml),
//! so that every stamp is on CLOCK_MONOTONIC, can be compared between processes of one clock domain,
//! and can be shifted or scaled in tests.

use std::{
    fmt,
    ops::{Add, Sub},
    str::FromStr,
    time::Duration,
};

use rustix::time::{ClockId, clock_gettime};

/// One clock reading: nanoseconds on CLOCK_MONOTONIC of the process that took it.
///
/// 0 on the wire means "not taken"; [`Stamp::from_wire`] turns it into `None`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Stamp(i64);

impl Stamp {
    /// A stamp from nanoseconds, for tests and virtual time.
    pub const fn from_ns(ns: i64) -> Self {
        Self(ns)
    }

    /// Nanoseconds, as sent on the wire.
    pub const fn ns(self) -> i64 {
        self.0
    }

    /// The stamp a peer sent; `None` when it was not taken.
    pub fn from_wire(ns: i64) -> Option<Self> {
        (ns != 0).then_some(Self(ns))
    }

    /// Signed nanoseconds from `earlier` to `self`.
    pub const fn since(self, earlier: Self) -> i64 {
        self.0 - earlier.0
    }

    /// Time from `earlier` to `self`; zero when `earlier` is later.
    pub fn saturating_since(self, earlier: Self) -> Duration {
        Duration::from_nanos(u64::try_from(self.since(earlier)).unwrap_or(0))
    }
}

impl Add<Duration> for Stamp {
    type Output = Self;
    fn add(self, d: Duration) -> Self {
        Self(self.0.saturating_add(i64::try_from(d.as_nanos()).unwrap_or(i64::MAX)))
    }
}

impl Sub<Duration> for Stamp {
    type Output = Self;
    fn sub(self, d: Duration) -> Self {
        Self(self.0.saturating_sub(i64::try_from(d.as_nanos()).unwrap_or(i64::MAX)))
    }
}

/// Reads CLOCK_MONOTONIC, optionally scaled about its zero (a drifting clock).
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    drift: Drift,
}

impl Clock {
    /// The true clock.
    pub fn new() -> Self {
        Self::with_drift(Drift::default())
    }

    /// A clock that runs faster or slower than the true one; for tests of the breakdown.
    pub fn with_drift(drift: Drift) -> Self {
        Self { drift }
    }

    /// How much it runs faster than the true clock.
    pub fn drift(&self) -> Drift {
        self.drift
    }

    /// The time now.
    pub fn now(&self) -> Stamp {
        self.drift.of_true(Stamp(monotonic_ns()))
    }

    /// Nanoseconds from 1970 to the moment at which this clock read 0: added to a stamp it gives a date, as good as
    /// the machine's date is. For exports only; no duration is made of it.
    pub fn unix_offset_ns(&self) -> i64 {
        let date = clock_gettime(ClockId::Realtime);
        date.tv_sec * 1_000_000_000 + date.tv_nsec - self.now().ns()
    }

    /// Time from now until `stamp` on this clock; zero when it has passed.
    pub fn until(&self, stamp: Stamp) -> Duration {
        stamp.saturating_since(self.now())
    }
}

impl Default for Clock {
    fn default() -> Self {
        Self::new()
    }
}

/// How much faster than true a clock runs, in parts per billion.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Drift(i64);

impl Drift {
    /// Parts per billion; within ± 1 %.
    pub fn from_ppb(ppb: i64) -> Option<Self> {
        (ppb.abs() <= 10_000_000).then_some(Self(ppb))
    }
}

impl Drift {
    /// What a clock that drifts so reads when the true one reads `stamp`.
    pub fn of_true(self, stamp: Stamp) -> Stamp {
        Stamp(stamp.0 + (i128::from(stamp.0) * i128::from(self.0) / BILLION) as i64)
    }

    /// What the true clock read when one that drifts so read `stamp`; within 1 ns.
    pub fn to_true(self, stamp: Stamp) -> Stamp {
        Stamp((i128::from(stamp.0) * BILLION / (BILLION + i128::from(self.0))) as i64)
    }
}

impl FromStr for Drift {
    type Err = String;

    fn from_str(ppm: &str) -> Result<Self, String> {
        let value: f64 = ppm.parse().map_err(|e| format!("drift {ppm:?} is no number of ppm: {e}"))?;
        Self::from_ppb((value * 1e3) as i64)
            .filter(|_| value.is_finite())
            .ok_or_else(|| format!("drift {ppm} ppm is outside ± 10000 ppm"))
    }
}

const BILLION: i128 = 1_000_000_000;

impl fmt::Display for Drift {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0 as f64 / 1e3)
    }
}

fn monotonic_ns() -> i64 {
    let t = clock_gettime(ClockId::Monotonic);
    t.tv_sec * 1_000_000_000 + t.tv_nsec
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stamps_of_one_clock_never_go_back() {
        let clock = Clock::new();
        let mut last = clock.now();
        for _ in 0..10_000 {
            let now = clock.now();
            assert!(now >= last);
            last = now;
        }
    }

    #[test]
    fn a_fast_clock_gains_its_drift_and_can_be_undone() {
        let fast = Drift::from_ppb(1_000_000).unwrap();
        let second = Stamp::from_ns(1_000_000_000);
        assert_eq!(fast.of_true(second), Stamp::from_ns(1_001_000_000));
        for ns in [1, 999_999_999, 13_311_214_217_311] {
            let stamp = Stamp::from_ns(ns);
            assert!(fast.to_true(fast.of_true(stamp)).since(stamp).abs() <= 1, "{ns}");
        }
        assert!(Clock::with_drift(fast).now() > Clock::new().now());
    }

    #[test]
    fn an_untaken_stamp_is_none() {
        assert_eq!(Stamp::from_wire(0), None);
        assert_eq!(Stamp::from_wire(7), Some(Stamp::from_ns(7)));
    }

    #[test]
    fn an_absurd_drift_is_refused() {
        assert!("20000".parse::<Drift>().unwrap_err().contains("20000"));
        assert!("NaN".parse::<Drift>().is_err());
        assert_eq!("50".parse::<Drift>(), Ok(Drift(50_000)));
    }
}
