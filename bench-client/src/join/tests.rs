//! A made-up world: three clocks, known segments, and the stamps each process would take of them.

use firstlight_proto::{
    cause,
    inject::Segment,
    offset::Probe,
    v1::{
        Cause, CauseTime, ClockDomain, ClockOffset, EngineTimeline, LostAttempt, SchedulerTimeline, Span,
        SpanBatch, SpanEvent, Timeline, span,
    },
};
use proptest::prelude::*;

use super::*;
use crate::{
    observe::spans::SpanStore,
    target::{Arrival, Outcome},
};

const MS: i64 = 1_000_000;
const SECOND: i64 = 1_000 * MS;

/// The true lengths of all parts, ns.
#[derive(Clone, Debug)]
struct Truth {
    parts: [i64; PARTS],
    behind: i64,
    chunks_between: i64,
}

impl Truth {
    fn example() -> Self {
        // Distinct, so that a value in the wrong place shows.
        let parts = [11, 230, 370, 405 * MS, 190, 21 * MS, 10 * MS, 170, 250, 0];
        Self {
            parts: parts.map(|x: i64| if x < MS { x * 1_000 } else { x }),
            behind: 100 * MS,
            chunks_between: MS,
        }
    }

    fn ttft(&self) -> i64 {
        self.parts.iter().sum()
    }

    fn part(&self, segment: Segment) -> i64 {
        self.parts[segment as usize]
    }
}

/// Where the clocks stand: theirs = ours + offset.
#[derive(Clone, Copy, Debug, Default)]
struct World {
    scheduler: i64,
    engine: i64,
}

fn domain(name: &str) -> ClockDomain {
    ClockDomain { boot_id: name.to_owned(), time_namespace: "time:[1]".to_owned() }
}

impl World {
    fn domains(self) -> [ClockDomain; 3] {
        let one_clock = self.scheduler == 0 && self.engine == 0;
        ["client", "scheduler", "engine"].map(|who| domain(if one_clock { "all" } else { who }))
    }

    /// What `truth`, begun at `start` on our clock, looks like to the three processes.
    fn observe(self, start: i64, truth: &Truth) -> (Record, SchedulerTimeline, EngineTimeline) {
        let mut at = [start; PARTS];
        for i in 0..LOST {
            at[i + 1] = at[i] + truth.parts[i];
        }
        // `lost` happens between queued and the last admission.
        let lost = truth.parts[LOST];
        let shift = |i: usize| at[i] + if i >= 4 { lost } else { 0 };
        let mut record = Record::new("r".to_owned(), 0, 0, Stamp::from_ns(at[0]));
        record.sent = Some(Stamp::from_ns(at[1]));
        record.arrivals = vec![Arrival { at: Stamp::from_ns(shift(9)), tokens: 1 }];
        record.ended = Some(Stamp::from_ns(shift(9) + SECOND));
        record.outcome = Outcome::Finished;
        let [_, scheduler, engine] = self.domains();
        let on_scheduler = |i| shift(i) + self.scheduler;
        let on_engine = |i| shift(i) + self.engine;
        let wait = truth.part(Segment::QueueWait);
        let lost_attempts = (lost != 0).then(|| LostAttempt {
            cause: Cause::EngineLost.into(),
            admit_ns: on_scheduler(3) + 1,
            requeued_ns: on_scheduler(3) + 1 + lost,
            engine: "dead".to_owned(),
        });
        let s = SchedulerTimeline {
            domain: Some(scheduler),
            received_ns: on_scheduler(2),
            queued_ns: on_scheduler(3),
            admit_ns: on_scheduler(4),
            first_token_ns: on_scheduler(8),
            queue_wait_by_cause: vec![
                charge(Cause::MaxActive, wait / 3),
                charge(Cause::EngineBusy, wait - wait / 3),
            ],
            queue_wait_ns: wait,
            behind_ns: truth.behind,
            lost: lost_attempts.into_iter().collect(),
            engine: "e".to_owned(),
            ..Default::default()
        };
        let prefill = truth.part(Segment::Prefill);
        let e = EngineTimeline {
            engine: "e".to_owned(),
            domain: Some(engine),
            received_ns: on_engine(5),
            admit_ns: on_engine(6),
            first_token_ns: on_engine(7),
            prefill_own_ns: prefill - truth.chunks_between,
            prefill_between_ns: truth.chunks_between,
            prefill_chunks: 2,
            engine_wait_by_cause: vec![charge(Cause::DecodeFirst, truth.part(Segment::EngineWait))],
            ..Default::default()
        };
        (record, s, e)
    }

    /// Probed clocks; ways of `there` and `back` ns.
    fn clocks(self, there: i64, back: i64) -> ClockMap {
        let [client, scheduler, engine] = self.domains();
        let mut map = ClockMap::new(client);
        for (name, domain, offset) in [(None, scheduler, self.scheduler), (Some("e"), engine, self.engine)] {
            let t = Stamp::from_ns;
            let (t2, t4) = (SECOND + there, SECOND + there + back);
            let probe = Probe::new(t(SECOND), t(t2 + offset), t(t2 + offset), t(t4)).unwrap();
            map.learn(name, Some(&domain), probe);
        }
        map
    }

    fn engine_clock(self, bound_ns: i64) -> ClockOffset {
        ClockOffset {
            peer: "e".to_owned(),
            offset_ns: self.engine - self.scheduler,
            bound_ns,
            ..Default::default()
        }
    }
}

fn charge(cause: Cause, ns: i64) -> CauseTime {
    CauseTime { cause: cause.into(), ns }
}

fn spans(s: Option<SchedulerTimeline>, e: Option<EngineTimeline>) -> SpanStore {
    let timelines = [s.map(span::Timeline::Scheduler), e.map(span::Timeline::Engine)];
    let spans = timelines.into_iter().flatten().map(|timeline| Span {
        request_id: "r".to_owned(),
        event: SpanEvent::FirstToken.into(),
        timeline: Some(timeline),
        ..Default::default()
    });
    let mut store = SpanStore::default();
    store.add(SpanBatch { spans: spans.collect(), ..Default::default() });
    store
}

fn chain_of(record: Record, spans: &SpanStore, clocks: &ClockMap) -> Chain {
    join(&[record], spans, clocks).remove(0).chain.expect("it has a first token")
}

#[test]
fn on_one_clock_every_part_is_exact_and_the_chain_closes_without_a_remainder() {
    let (world, truth) = (World::default(), Truth::example());
    let (record, s, e) = world.observe(5 * SECOND, &truth);
    let chain = chain_of(record, &spans(Some(s), Some(e)), &world.clocks(MS, MS));
    assert_eq!(chain.parts, truth.parts.map(|ns| Some(Measured::exact(ns))));
    assert_eq!((chain.ttft_ns, chain.unexplained_ns, chain.closed()), (truth.ttft(), 0, true));
    assert_eq!(chain.from_sent_ns, Some(truth.ttft() - truth.part(Segment::ClientLag)));
    assert_eq!((chain.scheduler_source, chain.engine_source), (Source::Direct, Source::Direct));
    assert_eq!(chain.prefill, Some(chain::Prefill { own_ns: 9 * MS, between_ns: MS, chunks: 2 }));
}

#[test]
fn causes_add_up_to_the_queue_wait_as_printed() {
    let mut truth = Truth::example();
    truth.parts[LOST] = 50 * MS;
    let world = World::default();
    let (record, s, e) = world.observe(0, &truth);
    let chain = chain_of(record, &spans(Some(s), Some(e)), &world.clocks(MS, MS));
    let parts = [Segment::QueueWait, Segment::Dispatch, Segment::EngineWait].map(|s| truth.part(s));
    let whole = parts.iter().sum::<i64>() + 50 * MS;
    assert_eq!(chain.queue_wait_total.unwrap().ns, whole);
    assert_eq!(cause::ALL.iter().map(|c| chain.causes[*c as usize]).sum::<i64>(), whole);
    assert_eq!(chain.causes[Cause::EngineLost as usize], 50 * MS);
    assert_eq!(chain.causes[Cause::RoundTrip as usize], truth.part(Segment::Dispatch));
    assert_eq!(chain.unexplained_ns, 0);
}

#[test]
fn causes_that_do_not_add_up_are_shown_as_unspecified() {
    let world = World::default();
    let (record, mut s, e) = world.observe(0, &Truth::example());
    s.queue_wait_by_cause.pop();
    let chain = chain_of(record, &spans(Some(s), Some(e)), &world.clocks(MS, MS));
    assert_eq!(chain.causes[0], Truth::example().part(Segment::QueueWait) * 2 / 3);
}

#[test]
fn the_final_message_stands_in_for_lost_spans() {
    let world = World { scheduler: 900 * SECOND, engine: -SECOND };
    let (mut record, s, e) = world.observe(0, &Truth::example());
    let engine_clock = Some(world.engine_clock(30_000));
    record.timeline =
        Some(Timeline { request_id: "r".into(), scheduler: Some(s), engine: Some(e), engine_clock });
    let chain = chain_of(record, &SpanStore::default(), &world.clocks(100_000, 100_000));
    assert_eq!((chain.scheduler_source, chain.engine_source), (Source::Final, Source::Final));
    assert!(chain.closed(), "{chain:?}");
}

#[test]
fn a_missing_piece_is_named_and_its_time_stays_unexplained() {
    let (world, truth) = (World::default(), Truth::example());
    let (record, s, e) = world.observe(0, &truth);
    let chain = chain_of(record.clone(), &spans(Some(s), None), &world.clocks(MS, MS));
    assert_eq!(chain.missing, ["engine stamps"]);
    let lost = [Segment::Dispatch, Segment::EngineWait, Segment::Prefill, Segment::Return];
    assert_eq!(chain.unexplained_ns, lost.iter().map(|s| truth.part(*s)).sum::<i64>());
    assert!(!chain.closed() && chain.queue_wait_total.is_none());

    let chain = chain_of(record.clone(), &SpanStore::default(), &world.clocks(MS, MS));
    assert_eq!(chain.missing, ["scheduler stamps", "engine stamps"]);
    assert_eq!(chain.unexplained_ns, truth.ttft() - truth.part(Segment::ClientLag));

    let chain = chain_of(record, &spans(None, Some(e)), &world.clocks(MS, MS));
    assert_eq!(chain.missing, ["scheduler stamps"]);
    let known = [Segment::ClientLag, Segment::EngineWait, Segment::Prefill];
    assert_eq!(chain.unexplained_ns, truth.ttft() - known.iter().map(|s| truth.part(*s)).sum::<i64>());
}

#[test]
fn an_unknown_clock_leaves_the_crossings_out_and_says_so() {
    let world = World { scheduler: SECOND, engine: 2 * SECOND };
    let (record, s, e) = world.observe(0, &Truth::example());
    let chain = chain_of(record, &spans(Some(s), Some(e)), &ClockMap::new(domain("client")));
    // Causality alone bounds the scheduler's clock; nothing bounds the engine's.
    assert_eq!(chain.missing, ["engine clock"]);
    assert!(chain.segment(Segment::Ingress).is_some() && chain.segment(Segment::Dispatch).is_none());
    let round_trip = Truth::example().part(Segment::Dispatch) + Truth::example().part(Segment::Return);
    assert_eq!(chain.engine_round_trip_ns, Some(round_trip));
}

#[test]
fn a_negative_segment_is_kept_negative() {
    let world = World::default();
    let (record, mut s, e) = world.observe(0, &Truth::example());
    s.received_ns -= 2 * MS;
    let chain = chain_of(record, &spans(Some(s), Some(e)), &world.clocks(MS, MS));
    assert!(chain.segment(Segment::Ingress).unwrap().ns < 0);
    assert_eq!(chain.unexplained_ns, 0, "what ingress lost, accept gained");
}

#[test]
fn a_lost_attempt_that_had_a_first_token_is_not_taken_for_the_one_that_counted() {
    let world = World::default();
    let (mut record, s, e) = world.observe(10 * SECOND, &Truth::example());
    let dead = EngineTimeline { received_ns: 1, admit_ns: 2, first_token_ns: 3, ..e.clone() };
    let mut store = spans(None, Some(dead));
    store.add(SpanBatch {
        spans: vec![Span {
            request_id: "r".into(),
            timeline: Some(span::Timeline::Engine(e.clone())),
            ..Default::default()
        }],
        ..Default::default()
    });
    record.timeline = Some(Timeline { scheduler: Some(s), engine: Some(e), ..Default::default() });
    let chain = chain_of(record, &store, &world.clocks(MS, MS));
    assert!(chain.closed(), "{chain:?}");
    assert_eq!(chain.engine_source, Source::Direct);
}

#[test]
fn a_request_without_a_first_token_still_has_its_wait() {
    let world = World::default();
    let (mut record, s, _) = world.observe(0, &Truth::example());
    record.arrivals.clear();
    record.outcome = Outcome::Failed { kind: "deadline", message: String::new() };
    let never = SchedulerTimeline {
        admit_ns: 0,
        first_token_ns: 0,
        queue_wait_ns: 0,
        finished_ns: s.queued_ns + 7 * MS,
        ..s
    };
    let records = [record];
    let spans = spans(Some(never), None);
    let joined = join(&records, &spans, &world.clocks(MS, MS));
    assert!(joined[0].chain.is_none());
    assert_eq!(joined[0].censored_queue_wait_ns, Some(7 * MS));
}

/// A delay of 7 ms at each hand-over in turn, on one clock and on three, is found in that segment and
/// nowhere else.
#[test]
fn an_injected_delay_appears_in_its_segment_and_nowhere_else() {
    for world in [World::default(), World { scheduler: 1_000 * SECOND, engine: -3 * SECOND }] {
        for segment in Segment::ALL {
            let mut truth = Truth::example();
            truth.parts[segment as usize] += 7 * MS;
            let (mut record, s, e) = world.observe(2 * SECOND, &truth);
            let engine_clock = Some(world.engine_clock(20_000));
            record.timeline = Some(Timeline { engine_clock, ..Default::default() });
            let chain = chain_of(record, &spans(Some(s), Some(e)), &world.clocks(60_000, 60_000));
            for (i, part) in chain.parts.iter().enumerate() {
                let part = part.expect("all stamps are there");
                let error = (part.ns - truth.parts[i]).abs();
                assert!(error <= part.bound_ns, "{i}: {part:?} for {} in {world:?}", truth.parts[i]);
            }
            assert!(chain.closed());
        }
    }
}

proptest! {
    #[test]
    fn the_truth_lies_within_the_bound_and_the_sum_is_what_the_client_saw(
        parts in prop::array::uniform10(0..2 * SECOND),
        scheduler in -1_000 * SECOND..1_000 * SECOND,
        engine in -1_000 * SECOND..1_000 * SECOND,
        there in 1_000..20 * MS,
        back in 1_000..20 * MS,
    ) {
        let (world, truth) = (World { scheduler, engine }, Truth { parts, behind: 0, chunks_between: 0 });
        let (record, s, e) = world.observe(2 * SECOND, &truth);
        let chain = chain_of(record, &spans(Some(s), Some(e)), &world.clocks(there, back));
        for (part, truth) in chain.parts.iter().zip(truth.parts) {
            let part = part.expect("all stamps are there");
            prop_assert!((part.ns - truth).abs() <= part.bound_ns, "{part:?} for {truth}");
        }
        let sum: i64 = chain.parts.iter().flatten().map(|m| m.ns).sum();
        prop_assert_eq!(sum + chain.unexplained_ns, truth.ttft());
        prop_assert!(chain.closed() || chain.ttft_ns < 1_000_000, "{:?}", chain);
    }
}
