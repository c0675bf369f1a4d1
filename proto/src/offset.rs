//! How far another process's clock is from ours, and how sure that is.
//!
//! `theirs = ours + offset`. Nothing is received before it is sent, so every message that crosses
//! bounds the offset from one side, and a four-timestamp probe bounds it from both: with `t1`, `t4`
//! ours and `t2`, `t3` theirs, `t3 - t4 ≤ offset ≤ t2 - t1`, an interval as wide as the round trip
//! (Cristian 1989; NTP, RFC 5905 §8). The narrowest observations per stretch of time are kept; pairs of
//! them bound the drift; an old observation widens by the drift's uncertainty × its age. The estimate is
//! the middle of what remains and its bound half the width, so it holds for any asymmetry of the path.

use std::{collections::VecDeque, time::Duration};

use crate::{
    clock::Stamp,
    v1::{ClockDomain, ClockOffset, ProbeClockResponse},
};

/// Drift assumed before it is measured: the largest slew that NTP clients apply by default.
const MAX_DRIFT_PPB: i64 = 500_000;
/// Change of the drift allowed for within the window.
const WANDER_PPB: i64 = 5_000;
/// Stretches of time that keep their narrowest observations.
const SLOTS: usize = 64;
/// Length of a stretch at the start; doubled whenever the slots run out.
const FIRST_SLOT_NS: i64 = 10_000_000;
const BILLION: i128 = 1_000_000_000;

/// One probe: `t1` sent and `t4` received on our clock, `t2` received and `t3` answered on theirs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Probe {
    t1: Stamp,
    t2: Stamp,
    t3: Stamp,
    t4: Stamp,
}

impl Probe {
    /// A probe whose stamps are in order on both clocks; `None` otherwise.
    pub fn new(t1: Stamp, t2: Stamp, t3: Stamp, t4: Stamp) -> Option<Self> {
        (t1 <= t4 && t2 <= t3).then_some(Self { t1, t2, t3, t4 })
    }

    /// The probe that `response`, received at `t4` on our clock, completes.
    pub fn from_response(response: &ProbeClockResponse, t4: Stamp) -> Option<Self> {
        let t = |ns| Stamp::from_wire(ns);
        Self::new(t(response.t1_ns)?, t(response.t2_ns)?, t(response.t3_ns)?, t4)
    }

    /// Time on the way, both directions, ns.
    pub fn round_trip_ns(&self) -> i64 {
        self.t4.since(self.t1) - self.t3.since(self.t2)
    }
}

/// The offset at one moment: `theirs = ours + offset_ns`, within ± `bound_ns`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Offset {
    /// ns to add to our reading to get theirs.
    pub offset_ns: i64,
    /// Half-width of the interval that holds the true offset, ns.
    pub bound_ns: i64,
}

impl Offset {
    /// The offset that a peer reported of a third clock.
    pub fn from_wire(offset: &ClockOffset) -> Self {
        Self { offset_ns: offset.offset_ns, bound_ns: offset.bound_ns }
    }

    /// Their stamp on our clock.
    pub fn to_ours(self, theirs: Stamp) -> Stamp {
        Stamp::from_ns(theirs.ns() - self.offset_ns)
    }

    /// Our stamp on their clock.
    pub fn to_theirs(self, ours: Stamp) -> Stamp {
        Stamp::from_ns(ours.ns() + self.offset_ns)
    }
}

/// A stamp taken on another clock and mapped onto ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mapped {
    /// When it was, on our clock.
    pub stamp: Stamp,
    /// The true moment lies within ± this, ns.
    pub bound_ns: i64,
}

/// Everything observed about one peer's clock.
#[derive(Clone, Debug)]
pub struct OffsetEstimator {
    same_clock: bool,
    window_ns: i64,
    slot_ns: i64,
    slots: VecDeque<Slot>,
    rate: Rate,
    probes: u64,
}

impl OffsetEstimator {
    /// An estimator that forgets observations older than `window` before the newest one.
    pub fn new(window: Duration) -> Self {
        Self {
            same_clock: false,
            window_ns: i64::try_from(window.as_nanos()).unwrap_or(i64::MAX),
            slot_ns: FIRST_SLOT_NS,
            slots: VecDeque::new(),
            rate: Rate::PRIOR,
            probes: 0,
        }
    }

    /// Tells where the peer's stamps are valid. In our own domain the offset is exactly 0; a peer that
    /// comes back in another domain starts anew.
    pub fn set_domains(&mut self, ours: &ClockDomain, theirs: &ClockDomain) {
        let same_clock = ours.shares_clock_with(theirs);
        if same_clock != self.same_clock {
            *self = Self { same_clock, ..Self::new(Duration::from_nanos(self.window_ns.unsigned_abs())) };
        }
    }

    /// Whether both processes read the same clock.
    pub fn same_clock(&self) -> bool {
        self.same_clock
    }

    /// Number of probes fed.
    pub fn probes(&self) -> u64 {
        self.probes
    }

    /// Feeds a probe.
    pub fn probe(&mut self, probe: Probe) {
        self.probes += 1;
        self.sent(probe.t1, probe.t2);
        self.received(probe.t3, probe.t4);
    }

    /// A message left us at `sent` (our clock) and arrived there at `received` (theirs).
    pub fn sent(&mut self, sent: Stamp, received: Stamp) {
        // True at `sent` itself: the way takes longer than the clocks drift apart meanwhile.
        self.observe(sent.ns(), Side::Upper, received.since(sent));
    }

    /// A message left them at `sent` (their clock) and arrived here at `received` (ours).
    pub fn received(&mut self, sent: Stamp, received: Stamp) {
        self.observe(received.ns(), Side::Lower, sent.since(received));
    }

    /// The offset when our clock reads `at`; `None` while one side is still unbounded.
    pub fn estimate(&self, at: Stamp) -> Option<Offset> {
        if self.same_clock {
            return Some(Offset::default());
        }
        let at = at.ns();
        let upper = self.points(Side::Upper).map(|p| p.value + self.rate.most(at - p.at)).min()?;
        let lower = self.points(Side::Lower).map(|p| p.value + self.rate.least(at - p.at)).max()?;
        // The sides cross only when the drift changed faster than allowed for: then the truth was in between.
        let bound_ns = (upper - lower).abs() / 2 + 1;
        Some(Offset { offset_ns: lower + (upper - lower) / 2, bound_ns })
    }

    /// Their stamp on our clock.
    pub fn to_ours(&self, theirs: Stamp) -> Option<Mapped> {
        let newest = self.slots.back().map_or(theirs.ns(), Slot::newest);
        let guess = self.estimate(Stamp::from_ns(newest))?.to_ours(theirs);
        let refined = self.estimate(guess)?.to_ours(theirs);
        let offset = self.estimate(refined)?;
        Some(Mapped { stamp: offset.to_ours(theirs), bound_ns: offset.bound_ns })
    }

    /// Drift of their clock against ours: the interval that holds it, parts per billion.
    pub fn drift_ppb(&self) -> (i64, i64) {
        (self.rate.low, self.rate.high)
    }

    /// The estimate at `at` as told to others; `None` as in [`Self::estimate`].
    pub fn to_wire(&self, peer: &str, domain: &ClockDomain, at: Stamp) -> Option<ClockOffset> {
        let offset = self.estimate(at)?;
        Some(ClockOffset {
            peer: peer.to_owned(),
            offset_ns: offset.offset_ns,
            bound_ns: offset.bound_ns,
            same_domain: self.same_clock,
            domain: Some(domain.clone()),
            at_ns: at.ns(),
        })
    }

    fn observe(&mut self, at: i64, side: Side, value: i64) {
        let newest = self.slots.back().map_or(at, Slot::newest);
        if self.same_clock || at < newest.saturating_sub(self.window_ns) {
            return;
        }
        let key = at.div_euclid(self.slot_ns);
        let place = self.slots.partition_point(|s| s.key < key);
        if self.slots.get(place).is_none_or(|s| s.key != key) {
            self.slots.insert(place, Slot { key, upper: None, lower: None });
        }
        if self.slots[place].tighten(side, Point { at, value }) {
            self.forget();
            self.rate = self.fit();
        }
    }

    fn forget(&mut self) {
        let oldest = self.slots.back().map_or(0, Slot::newest).saturating_sub(self.window_ns);
        while self.slots.front().is_some_and(|s| s.newest() < oldest) {
            self.slots.pop_front();
        }
        while self.slots.len() > SLOTS {
            self.slot_ns *= 2;
            for mut slot in std::mem::take(&mut self.slots) {
                slot.key = slot.key.div_euclid(2);
                match self.slots.back_mut() {
                    Some(last) if last.key == slot.key => last.merge(slot),
                    _ => self.slots.push_back(slot),
                }
            }
        }
    }

    /// The drift lies between the flattest and the steepest line that any two observations allow.
    fn fit(&self) -> Rate {
        let (mut low, mut high) = (i64::MIN, i64::MAX);
        for upper in self.points(Side::Upper) {
            for lower in self.points(Side::Lower) {
                let (time, rise) = (upper.at - lower.at, upper.value - lower.value);
                let slope = |rise: i64, time: i64| {
                    i64::try_from(i128::from(rise) * BILLION / i128::from(time)).unwrap_or(i64::MAX)
                };
                match time {
                    1.. => high = high.min(slope(rise, time)),
                    0 => {}
                    _ => low = low.max(slope(rise, time)),
                }
            }
        }
        let measured = Rate { low: low.saturating_sub(WANDER_PPB), high: high.saturating_add(WANDER_PPB) };
        measured.within(Rate::PRIOR)
    }

    fn points(&self, side: Side) -> impl Iterator<Item = &Point> {
        self.slots.iter().filter_map(move |s| match side {
            Side::Upper => s.upper.as_ref(),
            Side::Lower => s.lower.as_ref(),
        })
    }
}

#[derive(Clone, Copy, Debug)]
enum Side {
    /// The offset is at most the value.
    Upper,
    /// The offset is at least the value.
    Lower,
}

/// What one observation says of the offset when our clock read `at`.
#[derive(Clone, Copy, Debug)]
struct Point {
    at: i64,
    value: i64,
}

/// The narrowest observations of one stretch of time.
#[derive(Clone, Copy, Debug)]
struct Slot {
    key: i64,
    upper: Option<Point>,
    lower: Option<Point>,
}

impl Slot {
    fn tighten(&mut self, side: Side, point: Point) -> bool {
        let kept = match side {
            Side::Upper => &mut self.upper,
            Side::Lower => &mut self.lower,
        };
        let tighter = kept.is_none_or(|k| match side {
            Side::Upper => point.value < k.value,
            Side::Lower => point.value > k.value,
        });
        if tighter {
            *kept = Some(point);
        }
        tighter
    }

    fn merge(&mut self, other: Self) {
        if let Some(point) = other.upper {
            self.tighten(Side::Upper, point);
        }
        if let Some(point) = other.lower {
            self.tighten(Side::Lower, point);
        }
    }

    fn newest(&self) -> i64 {
        let at = |p: Option<Point>| p.map_or(i64::MIN, |p| p.at);
        at(self.upper).max(at(self.lower))
    }
}

/// Interval that holds the drift, parts per billion.
#[derive(Clone, Copy, Debug)]
struct Rate {
    low: i64,
    high: i64,
}

impl Rate {
    const PRIOR: Self = Self { low: -MAX_DRIFT_PPB, high: MAX_DRIFT_PPB };

    /// The part of `prior` that agrees with what was measured; the measured side wins when none does.
    fn within(self, prior: Self) -> Self {
        if self.low > prior.high {
            Self { low: self.low, high: self.high.min(self.low.saturating_add(2 * MAX_DRIFT_PPB)) }
        } else if self.high < prior.low {
            Self { low: self.low.max(self.high.saturating_sub(2 * MAX_DRIFT_PPB)), high: self.high }
        } else {
            Self { low: self.low.max(prior.low), high: self.high.min(prior.high) }
        }
    }

    /// Largest change of the offset over `ns` (negative: back in time).
    fn most(self, ns: i64) -> i64 {
        gained(ns, if ns >= 0 { self.high } else { self.low })
    }

    /// Smallest change of the offset over `ns`.
    fn least(self, ns: i64) -> i64 {
        gained(ns, if ns >= 0 { self.low } else { self.high })
    }
}

fn gained(ns: i64, ppb: i64) -> i64 {
    (i128::from(ns) * i128::from(ppb) / BILLION) as i64
}

#[cfg(test)]
mod tests;
