//! What is stamped of one request, from which its timeline, spans and metrics are made. It has one owner at
//! a time: the dispatch task while the request is in flight, then the client's stream, which ends it.

use std::sync::Arc;

use firstlight_proto::{clock::Stamp, inject::Segment, v1};

use crate::{
    admission::{Policy, Requeued, Tenant, Waited},
    engines::ClockView,
    metrics::SEGMENTS,
    otlp::TraceParent,
    request::Ask,
};

/// Stamps and facts of one request. Stamps are on the scheduler's clock unless they say otherwise.
#[derive(Clone, Debug)]
pub struct Record {
    /// The request's id.
    pub id: Arc<str>,
    /// Its run label.
    pub run_label: Arc<str>,
    /// The caller's trace.
    pub caller_trace: Option<TraceParent>,
    /// Who asks.
    pub tenant: Tenant,
    /// Its class; empty when there is none.
    pub class: Box<str>,
    /// When its caller stops waiting.
    pub deadline: Option<Stamp>,
    /// Prompt length, tokens.
    pub prompt_tokens: u32,
    /// Most tokens to generate.
    pub max_new_tokens: u32,
    /// Tokens received from engines so far.
    pub output_tokens: u32,
    /// Stamp 2.
    pub received: Stamp,
    /// Stamp 3.
    pub queued: Stamp,
    /// The admission of the attempt that gave (or may give) the first token.
    pub admitted: Option<Admitted>,
    /// Pending time before the first token, by cause. Set at each admission before the first token, and
    /// at the end of a request that never got one.
    pub waited: Waited,
    /// Attempts that died before the first token.
    pub lost: Vec<v1::LostAttempt>,
    /// Stamp 8.
    pub first_token: Option<Stamp>,
    /// Last token so far.
    pub last_token: Option<Stamp>,
    /// End of the request.
    pub finished: Option<Stamp>,
    /// Re-admissions after the first token.
    pub resumes: u32,
    /// Time from a loss to the next token, ns.
    pub resume_ns: i64,
    /// A loss after the first token that no token has followed yet.
    pub resuming_since: Option<Stamp>,
    /// Stamps 5 to 7, on the engine's clock; its name and domain are in [`engine_timeline`](Self::engine_timeline).
    pub engine: Option<v1::EngineTimeline>,
    /// Where they are valid.
    pub engine_domain: Option<Arc<v1::ClockDomain>>,
    /// The engine's clock at the first token.
    pub engine_clock: ClockView,
}

/// Stamp 4 and what belongs to it.
#[derive(Clone, Debug)]
pub struct Admitted {
    /// Stamp 4.
    pub at: Stamp,
    /// Number of the round on its attachment.
    pub round: u64,
    /// Requests in the round.
    pub round_size: u32,
    /// Name of the engine.
    pub engine: Arc<str>,
    /// Policy in force.
    pub policy: Policy,
    /// Version of the budget in force.
    pub budget_version: u64,
}

impl Record {
    /// The record of a request that is queued now.
    pub fn new(ask: &Ask, queued: Stamp) -> Self {
        Self {
            id: ask.id.clone(),
            run_label: ask.run_label.clone(),
            caller_trace: ask.trace,
            tenant: ask.tenant,
            class: ask.class.as_str().into(),
            deadline: ask.deadline,
            prompt_tokens: ask.prompt.len() as u32,
            max_new_tokens: ask.max_new,
            output_tokens: 0,
            received: ask.received,
            queued,
            admitted: None,
            waited: Waited::default(),
            lost: Vec::new(),
            first_token: None,
            last_token: None,
            finished: None,
            resumes: 0,
            resume_ns: 0,
            resuming_since: None,
            engine: None,
            engine_domain: None,
            engine_clock: None,
        }
    }

    /// The request was admitted. After the first token this is a resume and leaves the TTFT chain as it is.
    pub fn admit(&mut self, admitted: Admitted, waited: Waited) {
        if self.first_token.is_some() {
            self.resumes += 1;
        } else {
            self.admitted = Some(admitted);
            self.waited = waited;
        }
    }

    /// Its attempt died and it is queued again.
    pub fn requeue(&mut self, requeued: &Requeued, now: Stamp) {
        if self.first_token.is_some() {
            self.resuming_since.get_or_insert(now);
            return;
        }
        self.lost.push(v1::LostAttempt {
            cause: v1::Cause::from(requeued.why).into(),
            admit_ns: requeued.admitted.ns(),
            requeued_ns: now.ns(),
            engine: self.admitted.take().map(|a| a.engine.to_string()).unwrap_or_default(),
        });
        self.engine = None;
    }

    /// A token was decoded at `at`. Time since the one before it, ns; `None` for the first.
    pub fn token(&mut self, at: Stamp) -> Option<i64> {
        self.output_tokens += 1;
        if let Some(since) = self.resuming_since.take() {
            self.resume_ns += at.since(since);
        }
        self.first_token.get_or_insert(at);
        self.last_token.replace(at).map(|before| at.since(before))
    }

    /// Segments between stamps 2 and 8, ns; they sum to the time between these stamps. `None` before the
    /// first token, or when the engine's stamps are missing.
    pub fn segments(&self) -> Option<[(&'static str, i64); SEGMENTS.len()]> {
        let (first, engine, admitted) = (self.first_token?, self.engine.as_ref()?, self.admitted.as_ref()?);
        let clock = self.engine_clock?.offset;
        let [received, began, sampled] =
            [engine.received_ns, engine.admit_ns, engine.first_token_ns].map(Stamp::from_wire);
        let (received, began, sampled) = (received?, began?, sampled?);
        Some([
            (Segment::Accept.label(), self.queued.since(self.received)),
            (Segment::QueueWait.label(), self.waited.by_cause.total()),
            ("lost", self.lost.iter().map(|l| l.requeued_ns - l.admit_ns).sum()),
            (Segment::Dispatch.label(), clock.to_ours(received).since(admitted.at)),
            (Segment::EngineWait.label(), began.since(received)),
            (Segment::Prefill.label(), sampled.since(began)),
            (Segment::Return.label(), first.since(clock.to_ours(sampled))),
        ])
    }

    /// Segments `dispatch` and `return`, ns, where all stamps and the engine's clock are known.
    pub fn hand_overs(&self) -> Option<(i64, i64)> {
        let (first, engine, admitted) = (self.first_token?, self.engine.as_ref()?, self.admitted.as_ref()?);
        let clock = self.engine_clock?.offset;
        let [received, sampled] = [engine.received_ns, engine.first_token_ns].map(Stamp::from_wire);
        Some((clock.to_ours(received?).since(admitted.at), first.since(clock.to_ours(sampled?))))
    }

    /// The request's own timeline, for the last message of its stream.
    pub fn timeline(&self, domain: &v1::ClockDomain) -> v1::Timeline {
        v1::Timeline {
            request_id: self.id.to_string(),
            scheduler: Some(v1::SchedulerTimeline {
                domain: Some(domain.clone()),
                ..self.scheduler_timeline()
            }),
            engine: self.engine_timeline(),
            // Its domain is told beside it, with what the engine stamped.
            engine_clock: self.engine_clock.map(|clock| clock.to_wire(self.engine_name(), None)),
        }
    }

    /// Name of the engine of the admission above; empty without one.
    fn engine_name(&self) -> &str {
        self.admitted.as_ref().map_or("", |admitted| &admitted.engine)
    }

    /// What was asked for, as spans tell it.
    fn asked(&self) -> v1::Asked {
        v1::Asked {
            max_new_tokens: self.max_new_tokens,
            tenant: self.tenant.0,
            class: self.class.to_string(),
            deadline_ns: self.deadline.map_or(0, Stamp::ns),
        }
    }

    /// The span at `event`; with what the engine stamped where `relay_beside` is the clock domain of this service.
    pub fn span(
        &self,
        event: v1::SpanEvent,
        outcome: &str,
        relay_beside: Option<&v1::ClockDomain>,
    ) -> v1::Span {
        v1::Span {
            request_id: self.id.to_string(),
            run_label: self.run_label.to_string(),
            event: event.into(),
            timeline: Some(v1::span::Timeline::Scheduler(self.scheduler_timeline())),
            outcome: outcome.to_owned(),
            output_tokens: self.output_tokens,
            prompt_tokens: self.prompt_tokens,
            asked: Some(self.asked()),
            relayed: relay_beside.and_then(|ours| self.relayed(ours)),
        }
    }

    /// The engine's part of it.
    pub fn engine_timeline(&self) -> Option<v1::EngineTimeline> {
        Some(v1::EngineTimeline {
            engine: self.engine_name().to_owned(),
            domain: self.engine_domain.as_deref().cloned(),
            ..self.engine.clone()?
        })
    }

    /// The engine's part of it, as a span tells it beside the scheduler's: the engine is named there, and its domain is
    /// told where it is not `ours`.
    fn relayed(&self, ours: &v1::ClockDomain) -> Option<v1::EngineTimeline> {
        let domain = self.engine_domain.as_deref().filter(|theirs| *theirs != ours).cloned();
        Some(v1::EngineTimeline { domain, ..self.engine.clone()? })
    }

    /// The scheduler's part of it, without the domain.
    pub fn scheduler_timeline(&self) -> v1::SchedulerTimeline {
        let ns = |stamp: Option<Stamp>| stamp.map_or(0, Stamp::ns);
        let admitted = self.admitted.as_ref();
        v1::SchedulerTimeline {
            domain: None,
            received_ns: self.received.ns(),
            queued_ns: self.queued.ns(),
            admit_ns: ns(admitted.map(|a| a.at)),
            first_token_ns: ns(self.first_token),
            last_token_ns: ns(self.last_token),
            finished_ns: ns(self.finished),
            queue_wait_by_cause: cause_times(&self.waited),
            queue_wait_ns: self.waited.by_cause.total(),
            behind_ns: self.waited.behind,
            lost: self.lost.clone(),
            resumes: self.resumes,
            resume_ns: self.resume_ns,
            round: admitted.map_or(0, |a| a.round),
            round_size: admitted.map_or(0, |a| a.round_size),
            engine: self.engine_name().to_owned(),
            policy: admitted.map(|a| a.policy.name().to_owned()).unwrap_or_default(),
            budget_version: admitted.map_or(0, |a| a.budget_version),
        }
    }
}

/// Time by cause on the wire: causes without time are left out.
pub fn cause_times(waited: &Waited) -> Vec<v1::CauseTime> {
    let times = waited.by_cause.iter().filter(|(_, ns)| *ns > 0);
    times.map(|(cause, ns)| v1::CauseTime { cause: v1::Cause::from(cause).into(), ns }).collect()
}

/// A wait for people: `12.500 ms: max_active 10.000 ms, batch_size 2.500 ms`.
pub fn wait_in_words(waited: &Waited) -> String {
    let ms = |ns: i64| ns as f64 / 1e6;
    let causes: Vec<String> = (waited.by_cause.iter().filter(|(_, ns)| *ns > 0))
        .map(|(cause, ns)| format!("{} {:.3} ms", cause.label(), ms(ns)))
        .collect();
    format!("{:.3} ms: {}", ms(waited.by_cause.total()), causes.join(", "))
}

#[cfg(test)]
mod tests {
    use firstlight_proto::offset::{Offset, View};

    use super::*;
    use crate::admission::{ByCause, Cause, Key, Loss, Tenant, Tokens};

    fn at(ns: i64) -> Stamp {
        Stamp::from_ns(ns)
    }

    fn waited(ns: i64) -> Waited {
        let mut by_cause = ByCause::default();
        by_cause[Cause::BatchSize] = ns;
        Waited { by_cause, ..Waited::default() }
    }

    fn record() -> Record {
        let ask = Ask {
            id: "r".into(),
            run_label: "".into(),
            prompt: vec![1, 2],
            max_new: 4,
            sampling: v1::Sampling::default(),
            stop_token_ids: vec![],
            ignore_eos: false,
            no_prefix_cache: false,
            class: String::new(),
            tenant: Tenant(0),
            deadline: None,
            received: at(100),
            trace: None,
        };
        Record::new(&ask, at(150))
    }

    fn admitted(ns: i64) -> Admitted {
        Admitted {
            at: at(ns),
            round: 1,
            round_size: 1,
            engine: "e".into(),
            policy: Policy::Fifo,
            budget_version: 1,
        }
    }

    /// An engine whose clock is `ahead` of ours.
    fn engine(record: &mut Record, ahead: i64, [received, began, sampled]: [i64; 3]) {
        record.engine = Some(v1::EngineTimeline {
            received_ns: received + ahead,
            admit_ns: began + ahead,
            first_token_ns: sampled + ahead,
            ..Default::default()
        });
        let offset = Offset { offset_ns: ahead, bound_ns: 0 };
        record.engine_clock = Some(View { offset, same_clock: false, at: at(0) });
    }

    fn key() -> Key {
        let mut core = crate::admission::Admission::new(Default::default(), at(0)).unwrap();
        core.offer(at(0), crate::admission::Request::new(Tokens(1), Tokens(1))).unwrap().key
    }

    #[test]
    fn segments_sum_to_the_time_between_received_and_first_token() {
        let mut record = record();
        record.admit(admitted(250), waited(100));
        engine(&mut record, 1_000_000, [300, 350, 900]);
        record.token(at(1_000));
        let segments = record.segments().unwrap();
        assert_eq!(segments.iter().map(|s| s.1).sum::<i64>(), 900);
        assert_eq!(segments[3], ("dispatch", 50));
    }

    #[test]
    fn a_lost_attempt_is_a_segment_of_its_own() {
        let mut record = record();
        record.admit(admitted(250), waited(100));
        let lost = Requeued { key: key(), why: Loss::EngineLost, admitted: at(250), generated: Tokens(0) };
        record.requeue(&lost, at(400));
        record.admit(admitted(450), waited(150));
        engine(&mut record, 0, [500, 500, 600]);
        record.token(at(700));
        let segments = record.segments().unwrap();
        assert_eq!(segments[2], ("lost", 150));
        assert_eq!(segments.iter().map(|s| s.1).sum::<i64>(), 600);
        assert_eq!(record.lost[0].engine, "e");
    }

    #[test]
    fn a_loss_after_the_first_token_leaves_the_ttft_chain_as_it_is() {
        let mut record = record();
        record.admit(admitted(250), waited(100));
        engine(&mut record, 0, [300, 350, 900]);
        record.token(at(1_000));
        let chain = record.segments();
        let lost = Requeued { key: key(), why: Loss::Preempted, admitted: at(250), generated: Tokens(1) };
        record.requeue(&lost, at(1_100));
        record.admit(admitted(1_200), waited(100));
        assert_eq!(record.token(at(1_500)), Some(500));
        assert_eq!((record.segments(), record.resumes, record.resume_ns), (chain, 1, 400));
    }
}
