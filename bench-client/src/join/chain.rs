//! The chain of one request: ten stamps, nine segments and `lost`, and what is left over.

use firstlight_proto::{
    clock::Stamp,
    inject::Segment,
    offset::Offset,
    v1::{Cause, CauseTime, EngineTimeline, SchedulerTimeline},
};

use super::sources::{Source, Views};
use crate::{observe::ClockMap, target::Record};

/// Parts of a TTFT: the nine segments in order, then `lost`.
pub const PARTS: usize = Segment::ALL.len() + 1;
/// Index of `lost` among the parts.
pub const LOST: usize = Segment::ALL.len();
/// One slot per cause, indexed by its number; slot 0 is time that no cause was named for.
pub const CAUSES: usize = 12;
/// A chain closes when this share of TTFT, in thousandths, is the most that is unexplained.
const CLOSED_PER_MILLE: i64 = 1;

/// Names of the parts, in order.
pub fn part_names() -> [&'static str; PARTS] {
    let mut names = ["lost"; PARTS];
    for (name, segment) in names.iter_mut().zip(Segment::ALL) {
        *name = segment.label();
    }
    names
}

/// A duration and how sure it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Measured {
    /// ns; negative when the clocks disagree about the order. Never clamped.
    pub ns: i64,
    /// The true duration lies within ± this, ns; 0 when both stamps are of one clock.
    pub bound_ns: i64,
}

impl Measured {
    /// A duration between two stamps of one clock.
    pub const fn exact(ns: i64) -> Self {
        Self { ns, bound_ns: 0 }
    }

    /// Smaller than its own uncertainty.
    pub fn unresolved(self) -> bool {
        self.bound_ns > 0 && self.ns.abs() < self.bound_ns
    }
}

/// What happened between `admit_ts` and the first token in the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prefill {
    /// Forwards that held its rows, ns.
    pub own_ns: i64,
    /// Other work between its chunks, ns.
    pub between_ns: i64,
    /// Forwards that held its rows.
    pub chunks: u32,
}

/// Where one request's TTFT went.
#[derive(Clone, Debug, PartialEq)]
pub struct Chain {
    /// Stamp 9 − stamp 0, ns.
    pub ttft_ns: i64,
    /// Stamp 9 − stamp 1, ns.
    pub from_sent_ns: Option<i64>,
    /// The segments and `lost`; `None` = a stamp is missing or a clock unknown.
    pub parts: [Option<Measured>; PARTS],
    /// TTFT less all known parts, ns.
    pub unexplained_ns: i64,
    /// What kept the chain from being complete.
    pub missing: Vec<&'static str>,
    /// Stamp 3 → 6 by cause, ns; sums to `queue_wait_total` when that is known.
    pub causes: [i64; CAUSES],
    /// Stamp 3 → 6: until its prefill really starts.
    pub queue_wait_total: Option<Measured>,
    /// The part of `queue_wait` before it reached the head of its lane, ns.
    pub behind_ns: Option<i64>,
    /// The inside of `prefill`.
    pub prefill: Option<Prefill>,
    /// `ingress + deliver`, exact whatever the clocks' offset, ns.
    pub client_round_trip_ns: Option<i64>,
    /// `dispatch + return`, exact whatever the clocks' offset, ns.
    pub engine_round_trip_ns: Option<i64>,
    /// How the scheduler's stamps came.
    pub scheduler_source: Source,
    /// How the engine's stamps came.
    pub engine_source: Source,
}

impl Chain {
    /// No stamp is missing and at most 0.1 % of TTFT is unexplained.
    pub fn closed(&self) -> bool {
        self.missing.is_empty() && self.unexplained_ns.abs() * 1000 <= self.ttft_ns.abs() * CLOSED_PER_MILLE
    }

    /// A segment, when it is known.
    pub fn segment(&self, segment: Segment) -> Option<Measured> {
        self.parts[segment as usize]
    }
}

/// The chain of `record`; `None` when it has no first token.
pub fn chain(record: &Record, views: &Views<'_>, clocks: &ClockMap) -> Option<Chain> {
    let mut chain = Chain::of_services(record, views, clocks)?;
    chain.put(Segment::ClientLag, record.sent.map(|sent| Measured::exact(sent.since(record.submit_start))));
    if let (Some(scheduled), Some(first_token)) =
        (views.scheduler.and_then(Scheduled::of), record.first_token())
    {
        chain.cross_to_client(&scheduled, record.sent, first_token, clocks);
    }
    if record.sent.is_none() {
        chain.missing.push("client's sent stamp");
    }
    Some(chain.summed())
}

/// The chain between stamps 2 and 8 of a request whose client nobody asked; its record holds these stamps as those of
/// its sending and first token.
pub fn from_scheduler(record: &Record, views: &Views<'_>, clocks: &ClockMap) -> Option<Chain> {
    Chain::of_services(record, views, clocks).map(Chain::summed)
}

/// The scheduler's stamps, all taken.
struct Scheduled<'a> {
    received: Stamp,
    queued: Stamp,
    admit: Stamp,
    first_token: Stamp,
    timeline: &'a SchedulerTimeline,
}

impl<'a> Scheduled<'a> {
    fn of(timeline: &'a SchedulerTimeline) -> Option<Self> {
        Some(Self {
            received: Stamp::from_wire(timeline.received_ns)?,
            queued: Stamp::from_wire(timeline.queued_ns)?,
            admit: Stamp::from_wire(timeline.admit_ns)?,
            first_token: Stamp::from_wire(timeline.first_token_ns)?,
            timeline,
        })
    }
}

/// The engine's stamps, all taken.
struct Computed<'a> {
    received: Stamp,
    admit: Stamp,
    first_token: Stamp,
    timeline: &'a EngineTimeline,
}

impl<'a> Computed<'a> {
    fn of(timeline: &'a EngineTimeline) -> Option<Self> {
        Some(Self {
            received: Stamp::from_wire(timeline.received_ns)?,
            admit: Stamp::from_wire(timeline.admit_ns)?,
            first_token: Stamp::from_wire(timeline.first_token_ns)?,
            timeline,
        })
    }
}

impl Chain {
    /// What scheduler and engine tell.
    fn of_services(record: &Record, views: &Views<'_>, clocks: &ClockMap) -> Option<Self> {
        let first_token = record.first_token()?;
        let mut chain = Self {
            ttft_ns: first_token.since(record.submit_start),
            from_sent_ns: record.sent.map(|sent| first_token.since(sent)),
            parts: [None; PARTS],
            unexplained_ns: 0,
            missing: Vec::new(),
            causes: [0; CAUSES],
            queue_wait_total: None,
            behind_ns: None,
            prefill: None,
            client_round_trip_ns: None,
            engine_round_trip_ns: None,
            scheduler_source: views.scheduler_source,
            engine_source: views.engine_source,
        };
        let scheduled = views.scheduler.and_then(Scheduled::of);
        let computed = views.engine.and_then(Computed::of);
        if let Some(computed) = &computed {
            chain.add_engine(computed);
        }
        match &scheduled {
            Some(scheduled) => {
                chain.add_scheduler(scheduled);
                if let Some(computed) = &computed {
                    chain.cross_to_engine(scheduled, computed, views, clocks);
                }
                chain.add_causes(scheduled.timeline, views.engine);
            }
            None => chain.missing.push("scheduler stamps"),
        }
        if computed.is_none() {
            chain.missing.push("engine stamps");
        }
        Some(chain)
    }

    fn summed(mut self) -> Self {
        let known: i64 = self.parts.iter().flatten().map(|m| m.ns).sum();
        self.unexplained_ns = self.ttft_ns - known;
        self
    }

    fn put(&mut self, segment: Segment, measured: Option<Measured>) {
        self.parts[segment as usize] = measured;
    }

    fn add_scheduler(&mut self, s: &Scheduled<'_>) {
        let lost: i64 = s.timeline.lost.iter().map(|l| l.requeued_ns - l.admit_ns).sum();
        self.put(Segment::Accept, Some(Measured::exact(s.queued.since(s.received))));
        self.put(Segment::QueueWait, Some(Measured::exact(s.timeline.queue_wait_ns)));
        self.parts[LOST] = Some(Measured::exact(lost));
        self.behind_ns = Some(s.timeline.behind_ns);
    }

    fn cross_to_client(
        &mut self,
        s: &Scheduled<'_>,
        sent: Option<Stamp>,
        first_token: Stamp,
        clocks: &ClockMap,
    ) {
        let on_ours = |stamp| clocks.scheduler().to_ours(stamp);
        let (Some(received), Some(emitted)) = (on_ours(s.received), on_ours(s.first_token)) else {
            self.missing.push("scheduler clock");
            return;
        };
        let there = sent.map(|t| Measured { ns: received.stamp.since(t), bound_ns: received.bound_ns });
        let back = Measured { ns: first_token.since(emitted.stamp), bound_ns: emitted.bound_ns };
        self.put(Segment::Ingress, there);
        self.put(Segment::Deliver, Some(back));
        self.client_round_trip_ns = sent.map(|t| first_token.since(t) - s.first_token.since(s.received));
    }

    fn add_engine(&mut self, e: &Computed<'_>) {
        self.put(Segment::EngineWait, Some(Measured::exact(e.admit.since(e.received))));
        self.put(Segment::Prefill, Some(Measured::exact(e.first_token.since(e.admit))));
        self.prefill = Some(Prefill {
            own_ns: e.timeline.prefill_own_ns,
            between_ns: e.timeline.prefill_between_ns,
            chunks: e.timeline.prefill_chunks,
        });
    }

    fn cross_to_engine(&mut self, s: &Scheduled<'_>, e: &Computed<'_>, views: &Views<'_>, clocks: &ClockMap) {
        self.engine_round_trip_ns = Some(s.first_token.since(s.admit) - e.first_token.since(e.received));
        let Some(offset) = engine_offset(s, e.timeline, views, clocks) else {
            self.missing.push("engine clock");
            return;
        };
        let bound_ns = offset.bound_ns;
        let dispatch = offset.to_ours(e.received).since(s.admit);
        let back = s.first_token.since(offset.to_ours(e.first_token));
        self.put(Segment::Dispatch, Some(Measured { ns: dispatch, bound_ns }));
        self.put(Segment::Return, Some(Measured { ns: back, bound_ns }));
    }

    fn add_causes(&mut self, scheduler: &SchedulerTimeline, engine: Option<&EngineTimeline>) {
        let mut charge = |cause: Cause, ns: i64| self.causes[cause as usize] += ns;
        let mut named = |times: &[CauseTime], whole: i64| {
            for time in times {
                charge(time.cause(), time.ns);
            }
            charge(Cause::Unspecified, whole - times.iter().map(|t| t.ns).sum::<i64>());
        };
        named(&scheduler.queue_wait_by_cause, scheduler.queue_wait_ns);
        let engine_wait = self.parts[Segment::EngineWait as usize];
        if let (Some(engine), Some(whole)) = (engine, engine_wait) {
            named(&engine.engine_wait_by_cause, whole.ns);
        }
        for lost in &scheduler.lost {
            self.causes[lost.cause() as usize] += lost.requeued_ns - lost.admit_ns;
        }
        let dispatch = self.segment(Segment::Dispatch);
        self.causes[Cause::RoundTrip as usize] += dispatch.map_or(0, |d| d.ns);
        self.queue_wait_total = dispatch
            .zip(engine_wait)
            .map(|(dispatch, _)| Measured { ns: self.causes.iter().sum(), bound_ns: dispatch.bound_ns });
    }
}

/// `engine = scheduler + offset`: exactly 0 where both share a clock.
fn engine_offset(
    s: &Scheduled<'_>,
    engine: &EngineTimeline,
    views: &Views<'_>,
    clocks: &ClockMap,
) -> Option<Offset> {
    let domains = s.timeline.domain.as_ref().zip(engine.domain.as_ref());
    if domains.is_some_and(|(scheduler, engine)| scheduler.shares_clock_with(engine)) {
        return Some(Offset::default());
    }
    clocks.engine_from_scheduler(&engine.engine, views.engine_clock, s.admit)
}
