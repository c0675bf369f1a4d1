//! A request's record as spans: the request itself, and below it one per segment between `received` and the first
//! token, then `decode`. Engine's spans come mapped onto our clock, under the engine's own name. Pure.

use std::sync::Arc;

use firstlight_proto::{clock::Stamp, inject::Segment, v1};
use opentelemetry_proto::tonic::{
    common::v1::{AnyValue, KeyValue, any_value::Value},
    trace::v1::{Span, Status, span::SpanKind, status::StatusCode},
};

use super::TraceParent;
use crate::{
    metrics::FINISHES,
    record::{Record, cause_times},
};

/// The spans of one request, by who did the work.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RequestSpans {
    /// The scheduler's; the first is the request itself.
    pub scheduler: Vec<Span>,
    /// The engine's.
    pub engine: Vec<Span>,
    /// Name of the engine.
    pub engine_name: Arc<str>,
}

/// What is needed to place a request in time and in a trace.
#[derive(Clone, Copy, Debug)]
pub struct Frame {
    /// The caller's trace, or one that starts here.
    pub trace_id: [u8; 16],
    /// The caller's span.
    pub parent_id: Option<[u8; 8]>,
    /// Id of the request's own span; its children count on from it.
    pub span_id: u64,
    /// Added to a stamp: nanoseconds since 1970.
    pub unix_offset_ns: i64,
}

impl Frame {
    /// A frame with new ids where the caller brought none.
    pub fn new(caller: Option<TraceParent>, unix_offset_ns: i64) -> Self {
        let random = uuid::Uuid::now_v7();
        Self {
            trace_id: caller.map_or_else(|| random.into_bytes(), |caller| caller.trace_id),
            parent_id: caller.map(|caller| caller.parent_id),
            // The upper half of the id is the time; this is its random half.
            span_id: random.as_u64_pair().1,
            unix_offset_ns,
        }
    }
}

/// All spans of a request that ended with `outcome`.
pub fn request_spans(record: &Record, outcome: &str, frame: Frame) -> RequestSpans {
    let mut trace = Trace { frame, made: 0 };
    let end = record.finished.or(record.last_token).unwrap_or(record.queued);
    let mut spans = vec![trace.request(record, outcome, end)];
    spans.push(trace.child(Segment::Accept.label(), record.received, record.queued, vec![]));
    spans.extend(trace.waits(record, end));
    let mut engine = Vec::new();
    if let Some(crossing) = Crossing::of(record) {
        let bound = || vec![int("firstlight.clock_bound_ns", crossing.bound_ns)];
        spans.push(trace.child(Segment::Dispatch.label(), crossing.admitted, crossing.received, bound()));
        spans.push(trace.child(Segment::Return.label(), crossing.sampled, crossing.first_token, bound()));
        let stamped = crossing.engine;
        let waited = causes(&stamped.engine_wait_by_cause);
        engine.push(trace.child(Segment::EngineWait.label(), crossing.received, crossing.began, waited));
        let prefill = vec![
            int("firstlight.prefill.own_ns", stamped.prefill_own_ns),
            int("firstlight.prefill.between_ns", stamped.prefill_between_ns),
            int("firstlight.prefill.chunks", stamped.prefill_chunks.into()),
            int("firstlight.prefill.tokens_computed", stamped.prompt_tokens_computed.into()),
            int("firstlight.prefill.tokens_cached", stamped.prompt_tokens_cached.into()),
        ];
        engine.push(trace.child(Segment::Prefill.label(), crossing.began, crossing.sampled, prefill));
    }
    if let Some((first, last)) =
        record.first_token.zip(record.last_token).filter(|(first, last)| first < last)
    {
        let resumed = vec![
            int("firstlight.resumes", record.resumes.into()),
            int("firstlight.resume_ns", record.resume_ns),
        ];
        spans.push(trace.child("decode", first, last, resumed));
    }
    let engine_name = record.admitted.as_ref().map_or_else(|| "".into(), |a| a.engine.clone());
    RequestSpans { scheduler: spans, engine, engine_name }
}

/// Stamps 4 to 8 on our clock.
struct Crossing<'a> {
    admitted: Stamp,
    received: Stamp,
    began: Stamp,
    sampled: Stamp,
    first_token: Stamp,
    bound_ns: i64,
    engine: &'a v1::EngineTimeline,
}

impl<'a> Crossing<'a> {
    fn of(record: &'a Record) -> Option<Self> {
        let engine = record.engine.as_ref()?;
        let clock = record.engine_clock?.offset;
        let ours = |ns| Stamp::from_wire(ns).map(|stamp| clock.to_ours(stamp));
        Some(Self {
            admitted: record.admitted.as_ref()?.at,
            received: ours(engine.received_ns)?,
            began: ours(engine.admit_ns)?,
            sampled: ours(engine.first_token_ns)?,
            first_token: record.first_token?,
            bound_ns: clock.bound_ns,
            engine,
        })
    }
}

/// Makes the spans of one trace.
struct Trace {
    frame: Frame,
    made: u64,
}

impl Trace {
    fn request(&mut self, record: &Record, outcome: &str, end: Stamp) -> Span {
        let mut attributes = vec![
            text("firstlight.request_id", &record.id),
            text("firstlight.outcome", outcome),
            int("gen_ai.usage.input_tokens", record.prompt_tokens.into()),
            int("gen_ai.usage.output_tokens", record.output_tokens.into()),
            int("firstlight.queue_wait_ns", record.waited.by_cause.total()),
            int("firstlight.behind_ns", record.waited.behind),
        ];
        attributes.extend(causes(&cause_times(&record.waited)));
        if !record.run_label.is_empty() {
            attributes.push(text("firstlight.run_label", &record.run_label));
        }
        if let Some(admitted) = &record.admitted {
            attributes.push(text("firstlight.engine", &admitted.engine));
            attributes.push(text("firstlight.policy", admitted.policy.name()));
            attributes.push(int("firstlight.budget_version", admitted.budget_version as i64));
        }
        let finished = FINISHES.contains(&outcome);
        let code = if finished { StatusCode::Ok } else { StatusCode::Error };
        let message = if finished { String::new() } else { outcome.to_owned() };
        let parent_span_id = self.frame.parent_id.map_or_else(Vec::new, Vec::from);
        Span {
            kind: SpanKind::Server.into(),
            parent_span_id,
            status: Some(Status { message, code: code.into() }),
            ..self.child("generate", record.received, end, attributes)
        }
    }

    /// Pending periods and the attempts that died between them. The causes, kept over all periods, are the request's.
    fn waits(&mut self, record: &Record, end: Stamp) -> Vec<Span> {
        let mut spans = Vec::new();
        let mut pending_since = record.queued;
        for lost in &record.lost {
            let (admitted, requeued) = (Stamp::from_ns(lost.admit_ns), Stamp::from_ns(lost.requeued_ns));
            spans.push(self.child(Segment::QueueWait.label(), pending_since, admitted, vec![]));
            let why =
                vec![text("firstlight.cause", lost.cause().label()), text("firstlight.engine", &lost.engine)];
            spans.push(self.child("lost", admitted, requeued, why));
            pending_since = requeued;
        }
        let until = record.admitted.as_ref().map_or(end, |admitted| admitted.at);
        let by_cause = if record.lost.is_empty() { causes(&cause_times(&record.waited)) } else { vec![] };
        spans.push(self.child(Segment::QueueWait.label(), pending_since, until, by_cause));
        spans
    }

    /// A span below the request's own.
    fn child(&mut self, name: &str, start: Stamp, end: Stamp, mut attributes: Vec<KeyValue>) -> Span {
        let unix = |stamp: Stamp| (stamp.ns() + self.frame.unix_offset_ns) as u64;
        if end < start {
            // The protocol knows no negative span; the clocks disagree by this much.
            attributes.push(int("firstlight.negative_ns", end.since(start)));
        }
        let span_id = self.frame.span_id.wrapping_add(self.made).max(1);
        self.made += 1;
        Span {
            trace_id: self.frame.trace_id.to_vec(),
            span_id: span_id.to_be_bytes().to_vec(),
            parent_span_id: self.frame.span_id.max(1).to_be_bytes().to_vec(),
            name: name.to_owned(),
            kind: SpanKind::Internal.into(),
            start_time_unix_nano: unix(start),
            end_time_unix_nano: unix(end.max(start)),
            attributes,
            ..Span::default()
        }
    }
}

fn causes(times: &[v1::CauseTime]) -> Vec<KeyValue> {
    times.iter().map(|time| int(&format!("firstlight.cause.{}_ns", time.cause().label()), time.ns)).collect()
}

/// An attribute.
pub fn text(key: &str, value: &str) -> KeyValue {
    attribute(key, Value::StringValue(value.to_owned()))
}

fn int(key: &str, value: i64) -> KeyValue {
    attribute(key, Value::IntValue(value))
}

fn attribute(key: &str, value: Value) -> KeyValue {
    KeyValue { key: key.to_owned(), value: Some(AnyValue { value: Some(value) }), ..KeyValue::default() }
}
