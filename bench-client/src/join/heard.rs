//! Requests that other clients sent, as the scheduler tells of them: what happened before stamp 2 and after stamp 8
//! nobody tells. Pure.

use firstlight_proto::{
    clock::Stamp,
    error::Kind,
    v1::{ClockOffset, Timeline},
};

use super::{Joined, chain, sources};
use crate::{
    observe::{ClockMap, SpanStore, spans::Heard},
    target::{Arrival, Outcome, Record},
};

/// One record per request that was queued by `until` on the scheduler's clock, in the order they were received. Their
/// times are the scheduler's: one is submitted when it is received, and no more is known of its tokens than when the
/// first and the last came. `clocks` are the engines' seen from the scheduler.
pub fn records(spans: &SpanStore, until: Stamp, clocks: &[ClockOffset]) -> Vec<Record> {
    let mut records: Vec<Record> =
        spans.requests().filter_map(|(id, heard)| record(id, heard, until, clocks)).collect();
    records.sort_by_key(|record| record.submit_start);
    for (index, record) in records.iter_mut().enumerate() {
        record.index = index;
    }
    records
}

/// Joins `records` with the spans they were made of.
pub fn join<'a>(records: &'a [Record], spans: &'a SpanStore, clocks: &ClockMap) -> Vec<Joined<'a>> {
    let joined = records.iter().map(|record| {
        let views = sources::views(record, spans.get(&record.id));
        let chain = chain::from_scheduler(record, &views, clocks);
        let waited = views.scheduler.filter(|_| record.first_token().is_none());
        Joined { record, views, chain, censored_queue_wait_ns: waited.map(|s| s.queue_wait_ns) }
    });
    joined.collect()
}

fn record(id: &str, heard: &Heard, until: Stamp, clocks: &[ClockOffset]) -> Option<Record> {
    let scheduler = heard.scheduler.as_ref()?;
    let stamp = Stamp::from_wire;
    stamp(scheduler.queued_ns).filter(|queued| *queued <= until)?;
    let mut record = Record::new(id.to_owned(), 0, 0, stamp(scheduler.received_ns)?);
    record.prompt_tokens = Some(heard.prompt_tokens);
    record.max_new_tokens = heard.asked.max_new_tokens;
    record.counted_tokens = Some(heard.output_tokens);
    record.cached_tokens = heard.engine.last().map(|e| e.timeline.prompt_tokens_cached);
    let later = heard.output_tokens.saturating_sub(1);
    record.arrivals.extend(stamp(scheduler.first_token_ns).map(|at| Arrival { at, tokens: 1 }));
    if later > 0 && !record.arrivals.is_empty() {
        let last = stamp(scheduler.last_token_ns);
        record.arrivals.extend(last.map(|at| Arrival { at, tokens: later }));
    }
    record.ended = stamp(scheduler.finished_ns);
    record.outcome = match heard.outcome.as_deref() {
        None => record.outcome,
        Some(outcome) => match Kind::all().find(|kind| kind.label() == outcome) {
            None => Outcome::Finished,
            Some(kind) => Outcome::Failed { kind: kind.label(), message: String::new() },
        },
    };
    let engine_clock = clocks.iter().find(|clock| clock.peer == scheduler.engine).cloned();
    record.timeline = Some(Timeline { engine_clock, ..Timeline::default() });
    Some(record)
}

#[cfg(test)]
mod tests {
    use firstlight_proto::v1::{
        Asked, CauseTime, ClockDomain, EngineTimeline, SchedulerTimeline, Span, SpanBatch, SpanEvent,
        span::Timeline as Of,
    };

    use super::*;

    fn span(id: &str, event: SpanEvent, of: Of, outcome: &str, output_tokens: u32) -> Span {
        let asked = Some(Asked { max_new_tokens: 8, tenant: 7, ..Asked::default() });
        Span {
            request_id: id.into(),
            event: event.into(),
            timeline: Some(of),
            outcome: outcome.into(),
            output_tokens,
            prompt_tokens: 5,
            asked,
            ..Span::default()
        }
    }

    fn scheduler(received_ns: i64) -> SchedulerTimeline {
        SchedulerTimeline {
            domain: Some(ClockDomain::default()),
            received_ns,
            queued_ns: received_ns + 10,
            admit_ns: received_ns + 110,
            queue_wait_ns: 100,
            queue_wait_by_cause: vec![CauseTime { cause: 4, ns: 100 }],
            first_token_ns: received_ns + 500,
            last_token_ns: received_ns + 1_700,
            finished_ns: received_ns + 1_800,
            engine: "e".into(),
            ..SchedulerTimeline::default()
        }
    }

    /// An engine whose clock is a million ahead.
    fn engine(received_ns: i64) -> EngineTimeline {
        EngineTimeline {
            engine: "e".into(),
            domain: Some(ClockDomain { boot_id: "other".into(), ..ClockDomain::default() }),
            received_ns: received_ns + 130 + 1_000_000,
            admit_ns: received_ns + 200 + 1_000_000,
            first_token_ns: received_ns + 450 + 1_000_000,
            ..EngineTimeline::default()
        }
    }

    fn spans() -> SpanStore {
        let mut spans = SpanStore::default();
        let mut told = Vec::new();
        for (id, at, outcome) in [("late", 9_000, "length"), ("b", 2_000, "cancelled"), ("a", 1_000, "eos")] {
            told.push(span(id, SpanEvent::FirstToken, Of::Scheduler(scheduler(at)), "", 1));
            told.push(Span {
                relayed: Some(engine(at)),
                ..span(id, SpanEvent::Finished, Of::Scheduler(scheduler(at)), outcome, 4)
            });
        }
        spans.add(SpanBatch { spans: told, ..SpanBatch::default() });
        spans
    }

    fn clocks() -> [ClockOffset; 1] {
        [ClockOffset { peer: "e".into(), offset_ns: 1_000_000, bound_ns: 3, ..ClockOffset::default() }]
    }

    #[test]
    fn requests_stand_in_order_of_arrival_and_those_queued_too_late_are_left_out() {
        let records = records(&spans(), Stamp::from_ns(5_000), &clocks());
        let told: Vec<_> = records.iter().map(|r| (r.id.as_str(), r.index, r.submit_start.ns())).collect();
        assert_eq!(told, [("a", 0, 1_000), ("b", 1, 2_000)]);
        let a = &records[0];
        assert_eq!((a.prompt_tokens, a.max_new_tokens, a.output_tokens()), (Some(5), 8, 4));
        assert_eq!((a.ttft_ns(), a.tpot_ns(), a.latency_ns()), (Some(500), Some(400), Some(1_800)));
        assert!(a.completed() && records[1].is_cancelled());
    }

    #[test]
    fn the_chain_from_the_scheduler_closes_and_tells_nothing_of_the_client() {
        let spans = spans();
        let records = records(&spans, Stamp::from_ns(5_000), &clocks());
        let joined = join(&records, &spans, &ClockMap::new(ClockDomain::default()));
        let chain = joined[0].chain.as_ref().expect("a chain");
        assert!(chain.closed(), "{chain:?}");
        let names: Vec<_> = super::super::part_names().into_iter().zip(chain.parts).collect();
        let known: Vec<_> =
            names.iter().filter_map(|(name, part)| Some((*name, part.as_ref()?.ns))).collect();
        let expected = [
            ("accept", 10),
            ("queue_wait", 100),
            ("dispatch", 20),
            ("engine_wait", 70),
            ("prefill", 250),
            ("return", 50),
            ("lost", 0),
        ];
        assert_eq!(known, expected);
        assert_eq!(joined[0].views.asked.map(|asked| asked.tenant), Some(7));
    }
}
