//! One sequence's stamps, from its arrival in the engine to its first token.

use firstlight_proto::{
    clock::Stamp,
    inject::loss::Loss,
    serve::spans::Told,
    v1::{self, Cause, CauseTime, EngineTimeline, SpanEvent},
};
use firstlight_sim::{
    planner::{BatchId, NewSequence, Row},
    wait::{DecodeFirstClock, EngineWait},
};

use super::{Admission, AttachmentKey};
use crate::sample::Sampling;

/// What the loop keeps of a sequence besides the planner's state.
#[derive(Debug)]
pub(super) struct Running {
    pub(super) attachment: AttachmentKey,
    pub(super) handle: u32,
    pub(super) batch: BatchId,
    pub(super) request_id: String,
    pub(super) run_label: String,
    pub(super) sampling: Sampling,
    prompt_tokens: u32,
    generated: u32,
    received: Stamp,
    decode_first_at_received: i64,
    prefill: Option<Prefill>,
    first_token: Option<Stamp>,
}

/// From stamp 6 on.
#[derive(Debug)]
struct Prefill {
    admitted: Stamp,
    wait: EngineWait,
    own_ns: i64,
    chunks: u32,
    computed: u32,
    cached: u32,
}

/// The two segments that end in the engine, in ns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Segments {
    pub(super) wait: EngineWait,
    pub(super) own: i64,
    pub(super) between: i64,
}

impl Running {
    pub(super) fn new(
        attachment: AttachmentKey,
        batch: BatchId,
        received: Stamp,
        decode_first: &DecodeFirstClock,
        admission: Admission,
        new: &NewSequence,
    ) -> Self {
        let prompt_tokens = new.tokens.len() as u32 - admission.resumed_tokens;
        Self {
            attachment,
            handle: admission.handle,
            batch,
            request_id: admission.request_id,
            run_label: admission.run_label,
            sampling: admission.sampling,
            prompt_tokens,
            generated: 0,
            received,
            decode_first_at_received: decode_first.at(received.ns()),
            prefill: None,
            first_token: None,
        }
    }

    /// Stamp 6: the forward with its first prompt row starts.
    pub(super) fn begin(&mut self, start: Stamp, cached: usize, decode_first: &DecodeFirstClock) {
        let wait = self.waited(start, decode_first);
        self.prefill =
            Some(Prefill { admitted: start, wait, own_ns: 0, chunks: 0, computed: 0, cached: cached as u32 });
    }

    /// Whether its first prompt row has run.
    pub(super) fn has_begun(&self) -> bool {
        self.prefill.is_some()
    }

    /// How long it has waited, while it has not begun.
    pub(super) fn waited(&self, now: Stamp, decode_first: &DecodeFirstClock) -> EngineWait {
        let at_now = decode_first.at(now.ns());
        EngineWait::split(self.received.ns(), now.ns(), self.decode_first_at_received, at_now)
    }

    /// A forward held these prompt rows of it.
    pub(super) fn prefilled(&mut self, row: &Row, start: Stamp, end: Stamp) {
        if let Some(prefill) = &mut self.prefill {
            prefill.own_ns += end.since(start);
            prefill.chunks += 1;
            prefill.computed += row.len as u32;
        }
    }

    /// A token is on the host at `at`.
    pub(super) fn token(&mut self, at: Stamp) {
        self.generated += 1;
        self.first_token.get_or_insert(at);
    }

    /// The segments up to the first token; `None` before it.
    pub(super) fn segments(&self) -> Option<Segments> {
        let (prefill, first) = (self.prefill.as_ref()?, self.first_token?);
        let between = first.since(prefill.admitted) - prefill.own_ns;
        Some(Segments { wait: prefill.wait, own: prefill.own_ns, between })
    }

    /// Everything stamped so far. Who stamped it is said once, by what carries it.
    pub(super) fn timeline(&self) -> EngineTimeline {
        let mut timeline = EngineTimeline {
            received_ns: self.received.ns(),
            first_token_ns: self.first_token.map_or(0, Stamp::ns),
            prefill_between_ns: self.segments().map_or(0, |segments| segments.between),
            ..EngineTimeline::default()
        };
        if let Some(prefill) = &self.prefill {
            timeline.admit_ns = prefill.admitted.ns();
            timeline.prefill_own_ns = prefill.own_ns;
            timeline.prefill_chunks = prefill.chunks;
            timeline.prompt_tokens_computed = prefill.computed;
            timeline.prompt_tokens_cached = prefill.cached;
            timeline.engine_wait_by_cause = by_cause(prefill.wait);
        }
        timeline
    }

    /// The span to export at `event`.
    pub(super) fn span(&self, event: SpanEvent, outcome: &str, timeline: EngineTimeline) -> v1::Span {
        v1::Span {
            request_id: self.request_id.clone(),
            run_label: self.run_label.clone(),
            event: event.into(),
            outcome: outcome.to_owned(),
            output_tokens: self.generated,
            prompt_tokens: self.prompt_tokens,
            asked: None,
            relayed: None,
            timeline: Some(v1::span::Timeline::Engine(timeline)),
        }
    }
}

/// A sequence that ended, and how.
#[derive(Debug)]
pub(super) struct Ended {
    pub(super) running: Running,
    pub(super) outcome: &'static str,
}

impl Told for Ended {
    fn request_id(&self) -> &str {
        &self.running.request_id
    }

    fn run_label(&self) -> &str {
        &self.running.run_label
    }

    fn event(&self) -> SpanEvent {
        SpanEvent::Finished
    }

    fn loss(&self) -> Loss {
        Loss::EngineSpans
    }

    fn span(&self, _: Option<&v1::ClockDomain>) -> v1::Span {
        self.running.span(self.event(), self.outcome, self.running.timeline())
    }
}

fn by_cause(wait: EngineWait) -> Vec<CauseTime> {
    [(Cause::EngineBusy, wait.engine_busy), (Cause::DecodeFirst, wait.decode_first)]
        .into_iter()
        .filter(|&(_, ns)| ns > 0)
        .map(|(cause, ns)| CauseTime { cause: cause.into(), ns })
        .collect()
}
