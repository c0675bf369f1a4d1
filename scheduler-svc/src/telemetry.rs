//! What is told about requests: metrics and spans, at the events that release them.

use std::{sync::Arc, time::Duration};

use firstlight_proto::{
    clock::Clock,
    error::Failure,
    serve::spans::{SpanHub, Topic},
    v1,
};

use crate::{
    ended::Ended,
    metrics::{CancelledBy, Metrics, Tenants, in_seconds},
    otlp::Traces,
    record::Record,
};

/// One per service, shared by all that observe requests.
pub struct Telemetry {
    /// Clock of all stamps.
    pub clock: Clock,
    /// Where that clock is valid.
    pub domain: Arc<v1::ClockDomain>,
    /// Handles to the metrics.
    pub metrics: Metrics,
    /// And to those of each tenant.
    pub tenants: Tenants,
    /// Watchers of spans.
    pub spans: SpanHub,
    /// The way to a trace collector, if there is one.
    pub traces: Option<Traces>,
    /// Requests are told of; off only to measure what telling costs.
    pub tells: bool,
    /// Longest TTFT (stamps 2 to 8) that is in band `ok`.
    pub slo_ttft: Duration,
}

/// Name under which this service's stamps and spans are known.
pub const NAME: &str = "scheduler";

impl Telemetry {
    /// A request has its first token.
    pub fn first_token(&self, record: &Record) {
        let Some(first) = record.first_token.filter(|_| self.tells) else { return };
        let ttft = first.since(record.received);
        let missed = u128::try_from(ttft).unwrap_or(0) > self.slo_ttft.as_nanos();
        let segments = record.segments();
        self.metrics.first_token(ttft, missed, segments.as_ref());
        if let Some((_, wait)) = segments.iter().flatten().find(|(segment, _)| *segment == "queue_wait") {
            self.tenants.of(record.tenant).queue_wait.record(in_seconds(*wait));
        }
        if self.spans.wants(Topic::FirstToken) {
            let ours = self.spans.wants(Topic::Relayed).then_some(&*self.domain);
            let span = Arc::new(record.span(v1::SpanEvent::FirstToken, "", ours));
            self.metrics.spans_dropped(self.spans.publish(span));
        }
    }

    /// An engine's forward ended.
    pub fn forward(&self, engine: &str, step: &v1::Step) {
        if !self.spans.wants(Topic::Forward) {
            return;
        }
        let dropped = self.spans.publish_forward(v1::Forward {
            engine: engine.to_owned(),
            start_ns: step.start_ns,
            end_ns: step.end_ns,
            prefill_rows: step.prefill_rows,
            prefill_tokens: step.prefill_tokens,
            decode_rows: step.rows.saturating_sub(step.prefill_rows),
            bucket: step.bucket,
            attended: step.attended,
            active: step.active,
        });
        self.metrics.spans_dropped(dropped);
    }

    /// A request finished with a result.
    pub fn finished(&self, record: Record, reason: v1::FinishReason) {
        let outcome = outcome(reason);
        if let Some(finished) = record.finished {
            self.metrics.latency.record(in_seconds(finished.since(record.received)));
        }
        self.ended(record, outcome);
    }

    /// A queued request ended without one.
    pub fn failed(&self, record: Record, failure: &Failure, by: Option<CancelledBy>) {
        if let Some(by) = by {
            self.metrics.cancelled(by);
        }
        if record.first_token.is_none() {
            self.metrics.failed_before_first_token(failure.kind());
        }
        tracing::info!(request_id = %record.id, kind = failure.kind().label(), "request failed");
        self.ended(record, failure.kind().label());
    }

    fn ended(&self, record: Record, outcome: &'static str) {
        if !self.tells {
            return;
        }
        tracing::debug!(
            request_id = %record.id,
            outcome,
            prompt_tokens = record.prompt_tokens,
            output_tokens = record.output_tokens,
            "request ended"
        );
        self.metrics.finished(outcome);
        self.tenants.of(record.tenant).output_tokens.increment(record.output_tokens.into());
        let watched = self.spans.wants(Topic::Finished);
        if !watched && self.traces.is_none() {
            return;
        }
        let ended = Arc::new(Ended { record, outcome });
        if let Some(traces) = &self.traces {
            traces.export(ended.clone());
        }
        if watched {
            self.metrics.spans_dropped(self.spans.publish(ended));
        }
    }
}

/// A finish reason as the `outcome` of spans and metrics.
pub fn outcome(reason: v1::FinishReason) -> &'static str {
    match reason {
        v1::FinishReason::Length => "length",
        v1::FinishReason::Eos => "eos",
        v1::FinishReason::StopString => "stop_string",
        v1::FinishReason::StopToken => "stop_token",
        v1::FinishReason::Unspecified => "unspecified",
    }
}
