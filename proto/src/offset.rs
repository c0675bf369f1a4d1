//! How far another process's clock is from ours, and how sure that is.
//!
//! `theirs = ours + offset`. Nothing is received before it is sent, so every message that crosses
//! bounds the offset from one side, and a four-timestamp probe bounds it from both: with `t1`, `t4`
//! ours and `t2`, `t3` theirs, `t3 - t4 ≤ offset ≤ t2 - t1`, an interval as wide as the round trip
//! (Cristian 1989; NTP, RFC 5905 §8). An observation of another moment widens by the drift that clocks may
//! have × the time between. The estimate is the middle of what all observations leave and its bound half the
//! width, so it holds for any asymmetry of the path and for any change of the drift that is allowed for.
//!
//! - [`edge`]: the observations from one side
//! - [`rate`]: the drift that is allowed for

mod edge;
mod rate;

use std::time::Duration;

use crate::{
    clock::Stamp,
    v1::{ClockDomain, ClockOffset, ProbeClockResponse},
};

use edge::{Edge, Point, Side};
use rate::Rate;

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

/// A peer's clock as seen from ours at one moment, for others to be told of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct View {
    /// The offset.
    pub offset: Offset,
    /// Both processes read the same clock.
    pub same_clock: bool,
    /// When it held, on our clock.
    pub at: Stamp,
}

impl View {
    /// On the wire, of the peer of this name; `domain` is where the peer's stamps are valid.
    pub fn to_wire(self, peer: &str, domain: Option<ClockDomain>) -> ClockOffset {
        ClockOffset {
            peer: peer.to_owned(),
            offset_ns: self.offset.offset_ns,
            bound_ns: self.offset.bound_ns,
            same_domain: self.same_clock,
            domain,
            at_ns: self.at.ns(),
        }
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
    upper: Edge,
    lower: Edge,
    rate: Rate,
    probes: u64,
}

impl OffsetEstimator {
    /// An estimator that forgets observations older than `window` before the newest one.
    pub fn new(window: Duration) -> Self {
        Self {
            same_clock: false,
            window_ns: i64::try_from(window.as_nanos()).unwrap_or(i64::MAX),
            upper: Edge::new(Side::Upper),
            lower: Edge::new(Side::Lower),
            rate: Rate::ASSUMED,
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
        let (upper, _) = self.upper.at(at.ns(), self.rate)?;
        let (lower, _) = self.lower.at(at.ns(), self.rate)?;
        // They cross by no more than was rounded.
        let bound_ns = (upper - lower).abs() / 2 + 1;
        Some(Offset { offset_ns: lower + (upper - lower) / 2, bound_ns })
    }

    /// Their stamp on our clock.
    pub fn to_ours(&self, theirs: Stamp) -> Option<Mapped> {
        let newest = self.newest().unwrap_or(theirs.ns());
        let guess = self.estimate(Stamp::from_ns(newest))?.to_ours(theirs);
        let refined = self.estimate(guess)?.to_ours(theirs);
        let offset = self.estimate(refined)?;
        Some(Mapped { stamp: offset.to_ours(theirs), bound_ns: offset.bound_ns })
    }

    /// The estimate at `at` as told to others; `None` as in [`Self::estimate`].
    pub fn view(&self, at: Stamp) -> Option<View> {
        Some(View { offset: self.estimate(at)?, same_clock: self.same_clock, at })
    }

    fn observe(&mut self, at: i64, side: Side, value: i64) {
        let oldest = self.newest().map_or(at, |newest| newest.max(at)).saturating_sub(self.window_ns);
        if self.same_clock || at < oldest {
            return;
        }
        let point = Point { at, value };
        self.believe(point, side);
        let rate = self.rate;
        self.edges(side).0.insert(point, rate);
        self.upper.forget_before(oldest);
        self.lower.forget_before(oldest);
    }

    /// Starts over from an observation that contradicts what is known, and from the one that it contradicts most: the
    /// peer's clock ran at a rate that was not allowed for. If it was set, from the new observation alone.
    fn believe(&mut self, point: Point, side: Side) {
        let rate = self.rate;
        let (own, other) = self.edges(side);
        let Some((known, against)) = other.at(point.at, rate) else { return };
        if !side.tighter(point.value, known) {
            return;
        }
        let measured = Rate::of(point.value - against.value, point.at - against.at);
        own.keep_only(None);
        other.keep_only(measured.map(|_| against));
        self.rate = measured.unwrap_or(Rate::ASSUMED);
    }

    fn newest(&self) -> Option<i64> {
        self.upper.newest().max(self.lower.newest())
    }

    /// The edge of that side, and the other one.
    fn edges(&mut self, side: Side) -> (&mut Edge, &mut Edge) {
        match side {
            Side::Upper => (&mut self.upper, &mut self.lower),
            Side::Lower => (&mut self.lower, &mut self.upper),
        }
    }
}

#[cfg(test)]
mod tests;
