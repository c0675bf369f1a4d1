//! Spans by request id. Pure: batches go in, timelines come out.

use std::collections::HashMap;

use firstlight_proto::{
    clock::Stamp,
    inject::loss::{Loss, Share},
    v1::{Asked, ClockDomain, EngineTimeline, Forward, SchedulerTimeline, SpanBatch, SpanEvent, span},
};

/// An engine's view of one attempt, and the ways it came.
#[derive(Clone, Debug, PartialEq)]
pub struct EngineSpan {
    /// What the engine stamped.
    pub timeline: EngineTimeline,
    /// Told by the engine itself.
    pub direct: bool,
    /// Relayed by the scheduler, which relays the attempt whose first token it received.
    pub relayed: bool,
}

/// Everything that was heard of one request.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Heard {
    /// The scheduler's latest view.
    pub scheduler: Option<SchedulerTimeline>,
    /// One entry per attempt that reached a first token in an engine, in order of arrival.
    pub engine: Vec<EngineSpan>,
    /// What was asked for.
    pub asked: Asked,
    /// Prompt length in tokens.
    pub prompt_tokens: u32,
    /// Tokens produced so far.
    pub output_tokens: u32,
    /// How it ended, in the scheduler's words.
    pub outcome: Option<String>,
}

/// The spans of a run.
#[derive(Clone, Debug, Default)]
pub struct SpanStore {
    requests: HashMap<String, Heard>,
    finished: usize,
    forwards: Vec<Forward>,
    dropped: u64,
}

impl SpanStore {
    /// Takes in a batch.
    pub fn add(&mut self, batch: SpanBatch) {
        self.dropped += batch.dropped;
        self.forwards.extend(batch.forwards);
        let domain = batch.domain.as_ref();
        for span in batch.spans {
            let finished = span.event() == SpanEvent::Finished;
            let heard = self.requests.entry(span.request_id).or_default();
            match span.timeline {
                Some(span::Timeline::Scheduler(mut timeline)) => {
                    sign(&mut timeline.domain, domain);
                    if let Some(relayed) = span.relayed {
                        heard.add_engine(relayed, &timeline.engine, domain, Way::Relayed);
                    }
                    if !finished && heard.outcome.is_some() {
                        continue;
                    }
                    heard.scheduler = Some(timeline);
                    heard.asked = span.asked.unwrap_or_default();
                    heard.prompt_tokens = span.prompt_tokens;
                    heard.output_tokens = span.output_tokens;
                    if finished && heard.outcome.replace(span.outcome).is_none() {
                        self.finished += 1;
                    }
                }
                Some(span::Timeline::Engine(timeline)) => {
                    heard.add_engine(timeline, &batch.name, domain, Way::Direct);
                }
                None => {}
            }
        }
    }

    /// What was heard of a request.
    pub fn get(&self, request_id: &str) -> Option<&Heard> {
        self.requests.get(request_id)
    }

    /// Forwards of all engines, as they ended; none when they were not asked for.
    pub fn forwards(&self) -> &[Forward] {
        &self.forwards
    }

    /// Forgets the spans of a share of requests, as a network would that loses them.
    pub fn forget(&mut self, share: Share) {
        for (id, heard) in &mut self.requests {
            if share.takes(Loss::SchedulerSpans, id) {
                heard.scheduler = None;
            }
            if share.takes(Loss::EngineSpans, id) {
                heard.engine.clear();
            }
        }
    }

    /// Spans that the services dropped because this client was slow.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Requests of which the scheduler told the end.
    pub fn finished(&self) -> usize {
        self.finished
    }

    /// Whether these engines have told all attempts of theirs that the scheduler relayed.
    pub fn told_by(&self, engines: &[String]) -> bool {
        let behind = |span: &EngineSpan| !span.direct && engines.contains(&span.timeline.engine);
        !self.requests.values().flat_map(|heard| &heard.engine).any(behind)
    }

    /// All requests by id, in no order.
    pub fn requests(&self) -> impl Iterator<Item = (&str, &Heard)> {
        self.requests.iter().map(|(id, heard)| (id.as_str(), heard))
    }

    /// Of the requests that were queued by `at` on the scheduler's clock, those heard of, and of these those that have
    /// not ended.
    pub fn queued_by(&self, at: Stamp) -> (usize, usize) {
        let by = |heard: &&Heard| heard.scheduler.as_ref().is_some_and(|s| s.queued_ns <= at.ns());
        let queued = || self.requests.values().filter(by);
        (queued().count(), queued().filter(|heard| heard.outcome.is_none()).count())
    }

    /// Requests that are in flight, as far as they have been heard of: from their first token on.
    pub fn in_flight(&self) -> usize {
        self.requests.len() - self.finished
    }
}

/// How an engine's timeline came.
#[derive(Clone, Copy, PartialEq)]
enum Way {
    Direct,
    Relayed,
}

/// Writes into a timeline the domain that it leaves out because its batch says it once.
fn sign(left_out: &mut Option<ClockDomain>, domain: Option<&ClockDomain>) {
    if left_out.is_none() {
        *left_out = domain.cloned();
    }
}

impl Heard {
    /// The same attempt may come more than once: at its first token and at its end, direct and relayed. One without a
    /// first token has no place in the chain.
    fn add_engine(
        &mut self,
        mut timeline: EngineTimeline,
        name: &str,
        domain: Option<&ClockDomain>,
        way: Way,
    ) {
        if timeline.first_token_ns == 0 {
            return;
        }
        if timeline.engine.is_empty() {
            name.clone_into(&mut timeline.engine);
        }
        sign(&mut timeline.domain, domain);
        let (direct, relayed) = (way == Way::Direct, way == Way::Relayed);
        let same = |known: &EngineSpan| {
            known.timeline.engine == timeline.engine && known.timeline.received_ns == timeline.received_ns
        };
        match self.engine.iter_mut().find(|known| same(known)) {
            Some(known) => {
                known.direct |= direct;
                known.relayed |= relayed;
            }
            None => self.engine.push(EngineSpan { timeline, direct, relayed }),
        }
    }
}

#[cfg(test)]
mod tests {
    use firstlight_proto::v1::Span;

    use super::*;

    fn timeline(received_ns: i64, first_token_ns: i64) -> EngineTimeline {
        EngineTimeline { received_ns, first_token_ns, ..Default::default() }
    }

    fn engine(received_ns: i64, first_token_ns: i64) -> Span {
        let timeline = Some(span::Timeline::Engine(timeline(received_ns, first_token_ns)));
        Span { request_id: "r".into(), timeline, ..Default::default() }
    }

    fn scheduler(event: SpanEvent, finished_ns: i64) -> Span {
        let timeline = SchedulerTimeline { finished_ns, engine: "e".into(), ..Default::default() };
        let mut span = Span { request_id: "r".into(), ..Default::default() };
        span.set_event(event);
        span.timeline = Some(span::Timeline::Scheduler(timeline));
        span
    }

    /// The scheduler's span with what its engine stamped.
    fn relaying(relayed: EngineTimeline) -> Span {
        Span { relayed: Some(relayed), ..scheduler(SpanEvent::Finished, 9) }
    }

    fn batch(name: &str, spans: Vec<Span>) -> SpanBatch {
        SpanBatch { spans, dropped: 2, name: name.into(), ..Default::default() }
    }

    fn store(batches: Vec<SpanBatch>) -> SpanStore {
        let mut store = SpanStore::default();
        batches.into_iter().for_each(|batch| store.add(batch));
        store
    }

    #[test]
    fn the_end_of_a_request_wins_over_its_first_token_in_any_order() {
        let orders =
            [[SpanEvent::FirstToken, SpanEvent::Finished], [SpanEvent::Finished, SpanEvent::FirstToken]];
        for order in orders {
            let spans = order.map(|e| scheduler(e, if e == SpanEvent::Finished { 9 } else { 0 }));
            let store = store(vec![batch("scheduler", spans.to_vec())]);
            assert_eq!(store.get("r").unwrap().scheduler.as_ref().unwrap().finished_ns, 9);
            assert_eq!((store.finished(), store.dropped()), (1, 2));
        }
    }

    #[test]
    fn an_attempt_told_twice_is_kept_once_with_both_its_ways() {
        let relayed = vec![relaying(timeline(1, 5)), relaying(timeline(7, 9))];
        let store = store(vec![batch("scheduler", relayed), batch("e", vec![engine(1, 5)])]);
        let heard = &store.get("r").unwrap().engine;
        let kept: Vec<_> = heard.iter().map(|s| (s.timeline.received_ns, s.direct, s.relayed)).collect();
        assert_eq!(kept, [(1, true, true), (7, false, true)]);
        assert!(!store.told_by(&["e".into()]) && store.told_by(&["another".into()]));
    }

    #[test]
    fn what_is_said_once_stands_in_every_timeline() {
        let [ours, theirs] =
            ["a", "b"].map(|boot| ClockDomain { boot_id: boot.into(), time_namespace: "t".into() });
        let elsewhere = EngineTimeline { domain: Some(theirs.clone()), ..timeline(7, 9) };
        let of_scheduler = vec![relaying(timeline(1, 5)), relaying(elsewhere)];
        let store = store(vec![
            SpanBatch { domain: Some(ours.clone()), ..batch("scheduler", of_scheduler) },
            SpanBatch { domain: Some(theirs.clone()), ..batch("its own", vec![engine(8, 9)]) },
        ]);
        let heard = store.get("r").unwrap();
        assert_eq!(heard.scheduler.as_ref().unwrap().domain, Some(ours.clone()));
        let engines: Vec<_> =
            heard.engine.iter().map(|e| (e.timeline.engine.as_str(), e.timeline.domain.clone())).collect();
        assert_eq!(engines, [("e", Some(ours)), ("e", Some(theirs.clone())), ("its own", Some(theirs))]);
    }

    #[test]
    fn an_attempt_without_a_first_token_has_no_place_in_the_chain() {
        let spans = vec![engine(1, 0), relaying(timeline(1, 0))];
        assert!(store(vec![batch("e", spans)]).get("r").unwrap().engine.is_empty());
    }
}
