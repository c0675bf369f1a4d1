//! Handles to the metrics of events, registered once: a look-up by name costs more than the event.

use firstlight_proto::error::Kind as FailureKind;
use metrics::{Counter, Gauge, Histogram, counter, gauge, histogram};

use super::{TraceMetrics, in_seconds};
use crate::admission::Loss;

/// Segments of TTFT between stamps 2 and 8, in order.
pub const SEGMENTS: [&str; 7] =
    ["accept", "queue_wait", "lost", "dispatch", "engine_wait", "prefill", "return"];

/// How a finished request can end, as `outcome`.
pub const FINISHES: [&str; 4] = ["length", "eos", "stop_string", "stop_token"];

/// Who can take a request back, as `by`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CancelledBy {
    /// The client hung up.
    Client,
    /// Its deadline passed.
    Deadline,
    /// Its stream's buffer was full.
    Overflow,
    /// The service stops.
    Shutdown,
}

impl CancelledBy {
    const ALL: [Self; 4] = [Self::Client, Self::Deadline, Self::Overflow, Self::Shutdown];

    fn label(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::Deadline => "deadline",
            Self::Overflow => "overflow",
            Self::Shutdown => "shutdown",
        }
    }
}

/// A counter for each kind of failure.
struct ByKind(Vec<(FailureKind, Counter)>);

impl ByKind {
    fn new(name: &'static str) -> Self {
        Self(FailureKind::all().map(|kind| (kind, counter!(name, "kind" => kind.label()))).collect())
    }

    fn count(&self, kind: FailureKind) {
        self.0.iter().filter(|(k, _)| *k == kind).for_each(|(_, counter)| counter.increment(1));
    }
}

/// Whether TTFT kept to `--slo-ttft`, as `ttft_band`.
const BANDS: [&str; 2] = ["ok", "slo_miss"];

/// One handle for each metric of events.
pub struct Metrics {
    /// A Generate call was decoded.
    pub received: Counter,
    /// A request was queued.
    pub queued: Counter,
    /// Prompt tokens queued.
    pub prompt_tokens: Counter,
    /// Tokens received.
    pub output_tokens: Counter,
    /// Rounds sent.
    pub rounds: Counter,
    /// Requests per round.
    pub round_requests: Histogram,
    /// Whole requests.
    pub latency: Histogram,
    /// First tokens without a split.
    pub unsplit: Counter,
    /// Traces exported and dropped.
    pub traces: TraceMetrics,
    /// Stalls found.
    pub stalls: Counter,
    /// Whether stalled now.
    pub stalled: Gauge,
    spans_dropped: Counter,
    preemptions: Counter,
    lost: Counter,
    outcomes: Vec<(&'static str, Counter)>,
    refusals: ByKind,
    ttft_failures: ByKind,
    cancels: [Counter; CancelledBy::ALL.len()],
    ttft: [Histogram; 2],
    segments: [[Histogram; 2]; SEGMENTS.len()],
    negatives: [Counter; SEGMENTS.len()],
}

impl Metrics {
    /// Registers every metric of events, so that all are there, at 0, from the start.
    pub fn new() -> Self {
        let outcome = |o: &'static str| (o, counter!("firstlight_requests_finished_total", "outcome" => o));
        Self {
            received: counter!("firstlight_requests_received_total"),
            queued: counter!("firstlight_requests_queued_total"),
            prompt_tokens: counter!("firstlight_prompt_tokens_total"),
            output_tokens: counter!("firstlight_output_tokens_total"),
            rounds: counter!("firstlight_rounds_total"),
            round_requests: histogram!("firstlight_round_requests"),
            latency: histogram!("firstlight_latency_seconds"),
            unsplit: counter!("firstlight_ttft_unsplit_total"),
            spans_dropped: counter!("firstlight_spans_dropped_total"),
            traces: TraceMetrics::new(),
            stalls: counter!("firstlight_stalls_total"),
            stalled: gauge!("firstlight_stalled"),
            preemptions: counter!("firstlight_preemptions_total"),
            lost: counter!("firstlight_attempts_lost_total"),
            outcomes: FINISHES
                .into_iter()
                .chain(FailureKind::all().map(|k| k.label()))
                .map(outcome)
                .collect(),
            refusals: ByKind::new("firstlight_refusals_total"),
            ttft_failures: ByKind::new("firstlight_ttft_failures_total"),
            cancels: CancelledBy::ALL.map(|by| counter!("firstlight_cancels_total", "by" => by.label())),
            ttft: BANDS.map(|band| histogram!("firstlight_ttft_seconds", "ttft_band" => band)),
            segments: SEGMENTS.map(|segment| {
                BANDS.map(|band| {
                    histogram!("firstlight_ttft_segment_seconds", "segment" => segment, "ttft_band" => band)
                })
            }),
            negatives: SEGMENTS
                .map(|segment| counter!("firstlight_negative_segments_total", "segment" => segment)),
        }
    }

    /// A request was refused at the door.
    pub fn refused(&self, kind: FailureKind) {
        self.refusals.count(kind);
    }

    /// A queued request failed, and never had a first token.
    pub fn failed_before_first_token(&self, kind: FailureKind) {
        self.ttft_failures.count(kind);
    }

    /// A queued request ended.
    pub fn finished(&self, outcome: &str) {
        self.outcomes.iter().filter(|(o, _)| *o == outcome).for_each(|(_, counter)| counter.increment(1));
    }

    /// Slow watchers lost so many spans for a new one: none, nearly always.
    pub fn spans_dropped(&self, dropped: u64) {
        if dropped > 0 {
            self.spans_dropped.increment(dropped);
        }
    }

    /// A queued request was taken back.
    pub fn cancelled(&self, by: CancelledBy) {
        self.cancels[by as usize].increment(1);
    }

    /// An attempt died.
    pub fn attempt_died(&self, why: Loss) {
        match why {
            Loss::EngineLost => self.lost.increment(1),
            Loss::Preempted => self.preemptions.increment(1),
        }
    }

    /// A first token: TTFT and all its parts at once, so that sums and counts agree.
    pub fn first_token(
        &self,
        ttft_ns: i64,
        missed_slo: bool,
        segments: Option<&[(&'static str, i64); SEGMENTS.len()]>,
    ) {
        let band = usize::from(missed_slo);
        self.ttft[band].record(in_seconds(ttft_ns));
        let Some(segments) = segments else { return self.unsplit.increment(1) };
        debug_assert!(segments.iter().map(|s| s.0).eq(SEGMENTS));
        for (i, (_, ns)) in segments.iter().enumerate() {
            self.segments[i][band].record(in_seconds(*ns));
            if *ns < 0 {
                self.negatives[i].increment(1);
            }
        }
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}
