//! Every metric of the engine, declared in one place, and the handles the step loop keeps of them.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use firstlight_proto::{
    error::Kind as ErrorKind,
    serve::metrics::{Kind, Metric, TTFT_BUCKETS, seconds_counter},
    v1::Cause,
};
use firstlight_sim::{
    planner::{End, ForwardKind, ForwardPlan},
    wait::EngineWait,
};
use metrics::{Histogram, Unit, counter, gauge, histogram};

use crate::backend::DeviceForward;

/// Forwards take from microseconds (sim) to seconds (long prompts on a CPU).
const FORWARD_BUCKETS: &[f64] =
    &[0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];
/// On a device of their own they take from tens of microseconds.
const DEVICE_BUCKETS: &[f64] = &[
    0.00002, 0.00005, 0.0001, 0.00015, 0.0002, 0.0003, 0.0004, 0.0005, 0.00075, 0.001, 0.0015, 0.002, 0.005,
    0.01, 0.02, 0.05, 0.1, 0.5,
];
const ROW_BUCKETS: &[f64] = &[1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0];

const fn metric(
    name: &'static str,
    kind: Kind,
    unit: Unit,
    labels: &'static [&'static str],
    help: &'static str,
) -> Metric {
    Metric { name, kind, unit, help, labels }
}

const FORWARD_SECONDS: &str = "firstlight_engine_forward_seconds";
const DEVICE_SECONDS: &str = "firstlight_engine_device_seconds";
const FORWARD_ROWS: &str = "firstlight_engine_forward_rows";
const PADDING_ROWS: &str = "firstlight_engine_padding_rows_total";
const STEPS: &str = "firstlight_engine_steps_total";
const PREFILL_TOKENS: &str = "firstlight_engine_prefill_tokens_total";
const GENERATED_TOKENS: &str = "firstlight_engine_generated_tokens_total";
const DRAFT_TOKENS: &str = "firstlight_engine_draft_tokens_total";
const DRAFT_TOKENS_KEPT: &str = "firstlight_engine_draft_tokens_kept_total";
const PREFIX_HIT_TOKENS: &str = "firstlight_engine_prefix_hit_tokens_total";
const KV_BLOCKS: &str = "firstlight_engine_kv_blocks";
const KV_BLOCKS_FREE: &str = "firstlight_engine_kv_blocks_free";
const KV_BLOCKS_CACHED: &str = "firstlight_engine_kv_blocks_cached";
const ACTIVE: &str = "firstlight_engine_active_sequences";
const PREFILLING: &str = "firstlight_engine_prefilling_sequences";
const INBOX: &str = "firstlight_engine_inbox_sequences";
const ATTACHMENTS: &str = "firstlight_engine_attachments";
const ATTACHMENTS_TOTAL: &str = "firstlight_engine_attachments_total";
const FINISHED: &str = "firstlight_engine_finished_total";
const PREEMPTIONS: &str = "firstlight_engine_preemptions_total";
const CANCELS: &str = "firstlight_engine_cancels_total";
const REJECTED: &str = "firstlight_engine_rejected_total";
const SEGMENT_SECONDS: &str = "firstlight_engine_segment_seconds";
const WAIT_SECONDS: &str = "firstlight_engine_wait_seconds";
const PREFILL_SECONDS: &str = "firstlight_engine_prefill_seconds";
const SPANS_DROPPED: &str = "firstlight_engine_spans_dropped_total";

/// Live, so the page gets it from the step loop's own books ([`blocked_page`]).
const BLOCKED: Metric = metric(
    "firstlight_engine_blocked_seconds_total",
    Kind::SecondsCounter,
    Unit::Seconds,
    &["cause"],
    "Time that sequences spent in the engine before their prefill began, by cause; advances while they wait.",
);

/// Everything the engine exports.
#[rustfmt::skip]
pub const METRICS: &[Metric] = &[
    BLOCKED,
    metric(FORWARD_SECONDS, Kind::Histogram(FORWARD_BUCKETS), Unit::Seconds, &["kind", "bucket"],
        "Time of a forward, by kind and by rows rounded up to a power of two."),
    metric(DEVICE_SECONDS, Kind::Histogram(DEVICE_BUCKETS), Unit::Seconds, &["kind", "bucket"],
        "Time of a forward by a GPU's own clock, by kind and by decode rows with padding, or prompt tokens rounded up to a power of two."),
    metric(FORWARD_ROWS, Kind::Histogram(ROW_BUCKETS), Unit::Count, &["kind"],
        "Rows of a forward: prefill chunks, or decode rows and drafts."),
    metric(PADDING_ROWS, Kind::Counter, Unit::Count, &[],
        "Decode rows executed only to fill a bucket."),
    metric(STEPS, Kind::Counter, Unit::Count, &[],
        "Passes of the step loop that ran a forward."),
    metric(PREFILL_TOKENS, Kind::Counter, Unit::Count, &[],
        "Prompt tokens computed."),
    metric(GENERATED_TOKENS, Kind::Counter, Unit::Count, &[],
        "Tokens generated."),
    metric(DRAFT_TOKENS, Kind::Counter, Unit::Count, &[],
        "Tokens guessed ahead and executed beside decode rows."),
    metric(DRAFT_TOKENS_KEPT, Kind::Counter, Unit::Count, &[],
        "Guessed tokens that the model said as well."),
    metric(PREFIX_HIT_TOKENS, Kind::Counter, Unit::Count, &[],
        "Prompt tokens found in the prefix cache."),
    metric(KV_BLOCKS, Kind::Gauge, Unit::Count, &[],
        "KV blocks in the pool."),
    metric(KV_BLOCKS_FREE, Kind::Gauge, Unit::Count, &[],
        "KV blocks free: unused and evictable."),
    metric(KV_BLOCKS_CACHED, Kind::Gauge, Unit::Count, &[],
        "KV blocks known to the prefix cache, in use or evictable."),
    metric(ACTIVE, Kind::Gauge, Unit::Count, &[],
        "Sequences that have begun and not ended."),
    metric(PREFILLING, Kind::Gauge, Unit::Count, &[],
        "Sequences that left the inbox and have not finished their prompt."),
    metric(INBOX, Kind::Gauge, Unit::Count, &[],
        "Sequences in the inbox: admitted, not begun."),
    metric(ATTACHMENTS, Kind::Gauge, Unit::Count, &[],
        "Scheduler streams attached."),
    metric(ATTACHMENTS_TOTAL, Kind::Counter, Unit::Count, &[],
        "Scheduler streams attached since the start."),
    metric(FINISHED, Kind::Counter, Unit::Count, &["reason"],
        "Sequences that ended after they were admitted, by reason."),
    metric(PREEMPTIONS, Kind::Counter, Unit::Count, &[],
        "Sequences that gave way because the KV pool ran dry."),
    metric(CANCELS, Kind::Counter, Unit::Count, &[],
        "Sequences cancelled by their scheduler or ended with its stream."),
    metric(REJECTED, Kind::Counter, Unit::Count, &["kind"],
        "Sequences that were not taken, by kind of error."),
    metric(SEGMENT_SECONDS, Kind::Histogram(TTFT_BUCKETS), Unit::Seconds, &["segment"],
        "Segments of TTFT that end in the engine (engine_wait, prefill), observed at the first token."),
    metric(WAIT_SECONDS, Kind::Histogram(TTFT_BUCKETS), Unit::Seconds, &["cause"],
        "engine_wait by cause, observed at the first token; the causes' sums add up to the segment's."),
    metric(PREFILL_SECONDS, Kind::Histogram(TTFT_BUCKETS), Unit::Seconds, &["part"],
        "prefill by part, observed at the first token: own forwards, and other work between its chunks."),
    metric(SPANS_DROPPED, Kind::Counter, Unit::Count, &[],
        "Spans dropped because a watcher was slow."),
];

/// Totals and levels. The step loop counts in plain numbers and copies them, once per forward, to where a scrape finds
/// them ([`LiveCounts`]): handles of the recorder lie apart in memory, and touching each costs more than the counting.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    pub(crate) kv_blocks: u64,
    pub(crate) kv_blocks_free: u64,
    pub(crate) kv_blocks_cached: u64,
    pub(crate) active: u64,
    pub(crate) prefilling: u64,
    pub(crate) inbox: u64,
    pub(crate) attachments: u64,
    pub(crate) attachments_total: u64,
    pub(crate) steps: u64,
    pub(crate) preemptions: u64,
    pub(crate) cancels: u64,
    pub(crate) spans_dropped: u64,
    generated_tokens: u64,
    draft_tokens: u64,
    draft_tokens_kept: u64,
    prefill_tokens: u64,
    prefix_hit_tokens: u64,
    padding_rows: u64,
    finished: [u64; ENDS.len()],
}

/// The counts as they were between two forwards, written by the loop and read by whoever exports them.
#[derive(Debug, Clone, Default)]
pub struct LiveCounts(Arc<Mutex<Counts>>);

impl LiveCounts {
    /// The last ones.
    pub fn get(&self) -> Counts {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn set(&self, counts: &Counts) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = *counts;
    }
}

/// Brings the recorder up to date; without one it does nothing.
pub fn record_counts(counts: &Counts) {
    let level = |name: &'static str, value: u64| gauge!(name).set(value as f64);
    level(KV_BLOCKS, counts.kv_blocks);
    level(KV_BLOCKS_FREE, counts.kv_blocks_free);
    level(KV_BLOCKS_CACHED, counts.kv_blocks_cached);
    level(ACTIVE, counts.active);
    level(PREFILLING, counts.prefilling);
    level(INBOX, counts.inbox);
    level(ATTACHMENTS, counts.attachments);
    let total = |name: &'static str, value: u64| counter!(name).absolute(value);
    total(ATTACHMENTS_TOTAL, counts.attachments_total);
    total(STEPS, counts.steps);
    total(PREEMPTIONS, counts.preemptions);
    total(CANCELS, counts.cancels);
    total(SPANS_DROPPED, counts.spans_dropped);
    total(GENERATED_TOKENS, counts.generated_tokens);
    total(DRAFT_TOKENS, counts.draft_tokens);
    total(DRAFT_TOKENS_KEPT, counts.draft_tokens_kept);
    total(PREFILL_TOKENS, counts.prefill_tokens);
    total(PREFIX_HIT_TOKENS, counts.prefix_hit_tokens);
    total(PADDING_ROWS, counts.padding_rows);
    for (end, count) in ENDS.iter().zip(counts.finished) {
        counter!(FINISHED, "reason" => end.label()).absolute(count);
    }
}

/// What the step loop counts, and its handles to histograms: made once, so that no label is looked up on the hot path.
#[derive(Debug)]
pub struct EngineMetrics {
    /// The loop's own.
    pub(crate) counts: Counts,
    forwards: [Forwards; 3],
    /// Indexed by kind.
    device: [ByBucket; 3],
    segments: [Histogram; 2],
    wait: [Histogram; 2],
    prefill: [Histogram; 2],
}

/// The live part of `/metrics`.
pub fn blocked_page(blocked: EngineWait) -> String {
    let time = |ns: i64| Duration::from_nanos(u64::try_from(ns).unwrap_or_default());
    let samples = [
        (Cause::EngineBusy.label(), time(blocked.engine_busy)),
        (Cause::DecodeFirst.label(), time(blocked.decode_first)),
    ];
    seconds_counter(&BLOCKED, samples)
}

const KINDS: [ForwardKind; 3] = [ForwardKind::Prefill, ForwardKind::Decode, ForwardKind::Mixed];
const ENDS: [End; 6] = [End::Length, End::Eos, End::StopToken, End::Preempted, End::Cancelled, End::Failed];

#[derive(Debug)]
struct Forwards {
    rows: Histogram,
    seconds: ByBucket,
}

/// A histogram for each bucket of a kind, made when first used.
#[derive(Debug)]
struct ByBucket {
    name: &'static str,
    kind: &'static str,
    handles: Vec<Option<Histogram>>,
}

impl EngineMetrics {
    /// Handles on the installed recorder; without one they count nothing.
    pub fn new() -> Self {
        Self {
            counts: Counts::default(),
            forwards: KINDS.map(Forwards::new),
            device: KINDS.map(|kind| ByBucket::new(DEVICE_SECONDS, kind)),
            segments: ["engine_wait", "prefill"].map(|s| histogram!(SEGMENT_SECONDS, "segment" => s)),
            wait: [Cause::EngineBusy, Cause::DecodeFirst]
                .map(|cause| histogram!(WAIT_SECONDS, "cause" => cause.label())),
            prefill: ["own", "between"].map(|p| histogram!(PREFILL_SECONDS, "part" => p)),
        }
    }

    /// A forward ran for `ns`, padded to `bucket` rows.
    pub(crate) fn forward(&mut self, plan: &ForwardPlan, bucket: usize, ns: i64) {
        let rows = plan.rows.len();
        let forwards = &mut self.forwards[plan.kind as usize];
        forwards.rows.record(rows as f64);
        forwards.seconds.rounded(bucket).record(seconds(ns));
        self.counts.padding_rows += bucket.saturating_sub(rows) as u64;
        self.counts.prefill_tokens += plan.prefill_tokens() as u64;
        self.counts.prefix_hit_tokens += plan.cached_tokens as u64;
        self.counts.draft_tokens += plan.rows.iter().filter(|row| row.draft.is_some()).count() as u64;
    }

    /// What a device executed for it, by its own clock.
    pub(crate) fn device(&mut self, forwards: &[DeviceForward]) {
        for &DeviceForward { kind, rows, ns } in forwards {
            let by_bucket = &mut self.device[kind as usize];
            // Decode rows come in a few sizes; of prompts there are too many.
            let handle = match kind {
                ForwardKind::Decode => by_bucket.exact(rows),
                ForwardKind::Prefill | ForwardKind::Mixed => by_bucket.rounded(rows),
            };
            handle.record(seconds(ns as i64));
        }
    }

    /// A forward brought tokens; `drafted` of them stand behind a guess that was right.
    pub(crate) fn generated(&mut self, tokens: usize, drafted: usize) {
        self.counts.generated_tokens += tokens as u64;
        self.counts.draft_tokens_kept += drafted as u64;
    }

    /// A sequence reached its first token; times in ns.
    pub(crate) fn first_token(&self, wait: EngineWait, own: i64, between: i64) {
        self.wait[0].record(seconds(wait.engine_busy));
        self.wait[1].record(seconds(wait.decode_first));
        self.prefill[0].record(seconds(own));
        self.prefill[1].record(seconds(between));
        self.segments[0].record(seconds(wait.engine_busy + wait.decode_first));
        self.segments[1].record(seconds(own + between));
    }

    /// A sequence ended.
    pub(crate) fn finished(&mut self, end: End) {
        self.counts.finished[end as usize] += 1;
    }

    /// A sequence was not taken. Rare, so the label is looked up.
    pub(crate) fn rejected(&self, kind: ErrorKind) {
        counter!(REJECTED, "kind" => kind.label()).increment(1);
    }
}

impl Default for EngineMetrics {
    fn default() -> Self {
        Self::new()
    }
}

impl Forwards {
    fn new(kind: ForwardKind) -> Self {
        let rows = histogram!(FORWARD_ROWS, "kind" => kind.label());
        Self { rows, seconds: ByBucket::new(FORWARD_SECONDS, kind) }
    }
}

impl ByBucket {
    fn new(name: &'static str, kind: ForwardKind) -> Self {
        Self { name, kind: kind.label(), handles: Vec::new() }
    }

    fn exact(&mut self, rows: usize) -> &Histogram {
        self.at(rows, rows)
    }

    /// Up to a power of two.
    fn rounded(&mut self, rows: usize) -> &Histogram {
        let bucket = rows.next_power_of_two();
        self.at(bucket.trailing_zeros() as usize, bucket)
    }

    fn at(&mut self, slot: usize, bucket: usize) -> &Histogram {
        let Self { name, kind, handles } = self;
        if handles.len() <= slot {
            handles.resize(slot + 1, None);
        }
        handles[slot]
            .get_or_insert_with(|| histogram!(*name, "kind" => *kind, "bucket" => bucket.to_string()))
    }
}

fn seconds(ns: i64) -> f64 {
    ns as f64 / 1e9
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_name_is_declared_once_with_our_prefix_and_its_unit() {
        let mut names: Vec<_> = METRICS.iter().map(|metric| metric.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), METRICS.len());
        for metric in METRICS {
            assert!(metric.name.starts_with("firstlight_engine_"), "{}", metric.name);
            let counts = matches!(metric.kind, Kind::Counter | Kind::SecondsCounter);
            assert_eq!(counts, metric.name.ends_with("_total"), "{}", metric.name);
            let base = metric.name.trim_end_matches("_total");
            assert_eq!(metric.unit == Unit::Seconds, base.ends_with("_seconds"), "{}", metric.name);
        }
    }

    #[test]
    fn every_end_and_every_kind_of_forward_has_its_own_series() {
        for (i, end) in ENDS.iter().enumerate() {
            assert_eq!(*end as usize, i);
        }
        let metrics = EngineMetrics::new();
        for (i, kind) in KINDS.into_iter().enumerate() {
            assert_eq!((kind as usize, kind.label()), (i, metrics.forwards[i].seconds.kind));
            assert_eq!(kind.label(), metrics.device[i].kind);
        }
    }

    #[test]
    fn a_forward_on_a_device_is_timed_under_the_bucket_that_it_was_padded_to() {
        let (recorder, page) = firstlight_proto::serve::recorder::recorder(METRICS);
        metrics::with_local_recorder(&recorder, || {
            let mut metrics = EngineMetrics::new();
            let forward = |kind, rows, ns| DeviceForward { kind, rows, ns };
            metrics.device(&[
                forward(ForwardKind::Decode, 24, 250_000),
                forward(ForwardKind::Decode, 32, 350_000),
                forward(ForwardKind::Prefill, 700, 2_000_000),
            ]);
        });
        let page = page.render();
        for (kind, bucket, seconds) in
            [("decode", 24, 0.00025), ("decode", 32, 0.00035), ("prefill", 1024, 0.002)]
        {
            let line = format!("{DEVICE_SECONDS}_sum{{kind=\"{kind}\",bucket=\"{bucket}\"}} {seconds}");
            assert!(page.lines().any(|other| other == line), "{line}\n{page}");
        }
    }
}
