//! Every metric of the scheduler: name, unit, help, labels and buckets together; and the handles to them.

use firstlight_proto::{
    error::Kind as FailureKind,
    serve::metrics::{Kind, Metric, TTFT_BUCKETS},
    v1,
};
use metrics::{Counter, Gauge, Histogram, Unit, counter, gauge, histogram};

use crate::admission::{Budget, Gauges, Loss};

/// Buckets for the time between tokens, in seconds.
const ITL_BUCKETS: &[f64] =
    &[0.001, 0.0025, 0.005, 0.01, 0.015, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.25, 0.5, 1.0, 2.5, 10.0];
/// Buckets for whole requests, in seconds.
const LATENCY_BUCKETS: &[f64] =
    &[0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0];
/// Buckets for requests in a round.
const ROUND_BUCKETS: &[f64] = &[1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0];

/// Time blocked by cause; advances while requests wait.
pub const BLOCKED: Metric = seconds(
    "firstlight_queue_blocked_seconds_total",
    "Time that requests spent pending (queued to admitted), by the limit or state that kept them out.",
    &["cause"],
);

/// All metrics of this service.
pub const ALL: &[Metric] = &[
    BLOCKED,
    count("firstlight_requests_received_total", "Generate calls decoded.", &[]),
    count("firstlight_requests_queued_total", "Requests that entered the pending queue.", &[]),
    count(
        "firstlight_requests_finished_total",
        "Queued requests that ended, by finish reason or failure.",
        &["outcome"],
    ),
    count(
        "firstlight_refusals_total",
        "Requests refused before they were queued, by kind of failure.",
        &["kind"],
    ),
    count("firstlight_cancels_total", "Queued requests taken back, by who ended them.", &["by"]),
    count("firstlight_prompt_tokens_total", "Prompt tokens of queued requests.", &[]),
    count("firstlight_output_tokens_total", "Tokens received from engines.", &[]),
    count("firstlight_preemptions_total", "Attempts that an engine preempted.", &[]),
    count("firstlight_attempts_lost_total", "Attempts that died with their engine.", &[]),
    count("firstlight_rounds_total", "Rounds sent to engines.", &[]),
    histogram_of("firstlight_round_requests", Unit::Count, "Requests in a round.", ROUND_BUCKETS, &[]),
    histogram_of(
        "firstlight_ttft_seconds",
        Unit::Seconds,
        "Time from request decoded to first token decoded (stamps 2 to 8).",
        TTFT_BUCKETS,
        &["ttft_band"],
    ),
    histogram_of(
        "firstlight_ttft_segment_seconds",
        Unit::Seconds,
        "Parts of firstlight_ttft_seconds, all observed at the first token.",
        TTFT_BUCKETS,
        &["segment", "ttft_band"],
    ),
    count(
        "firstlight_ttft_unsplit_total",
        "First tokens whose parts are unknown: the engine's stamps or its clock were missing.",
        &[],
    ),
    count(
        "firstlight_negative_segments_total",
        "Parts of TTFT that came out negative (clocks are known within a bound only).",
        &["segment"],
    ),
    histogram_of(
        "firstlight_itl_seconds",
        Unit::Seconds,
        "Time between neighbouring tokens.",
        ITL_BUCKETS,
        &[],
    ),
    histogram_of(
        "firstlight_latency_seconds",
        Unit::Seconds,
        "Time from request decoded to its end, for requests that finished.",
        LATENCY_BUCKETS,
        &[],
    ),
    level("firstlight_pending_requests", "Requests pending (Gateway API: total queued requests).", &[]),
    level(
        "firstlight_active_requests",
        "Requests admitted and not finished (Gateway API: total running requests).",
        &[],
    ),
    level(
        "firstlight_kv_utilization_ratio",
        "Share of all engines' KV blocks in use (Gateway API: KV cache utilization).",
        &[],
    ),
    level("firstlight_engines_attached", "Engines attached.", &[]),
    level("firstlight_link_active_requests", "Active requests of an engine.", &["engine"]),
    level("firstlight_link_kv_blocks", "KV blocks of an engine.", &["engine"]),
    level("firstlight_link_kv_blocks_free", "KV blocks free (unused or evictable), as it says.", &["engine"]),
    level("firstlight_link_kv_blocks_left", "KV blocks left to promise to new requests.", &["engine"]),
    count("firstlight_link_attachments_total", "Attachments of an engine, the first included.", &["engine"]),
    count("firstlight_link_losses_total", "Attachments of an engine that ended.", &["engine"]),
    gauge_of("firstlight_clock_offset_seconds", Unit::Seconds, "The engine's clock less ours.", &["engine"]),
    gauge_of(
        "firstlight_clock_bound_seconds",
        Unit::Seconds,
        "The true clock offset lies within plus or minus this.",
        &["engine"],
    ),
    count("firstlight_spans_dropped_total", "Spans that slow watchers lost.", &[]),
    level(
        "firstlight_stalled",
        "1 while the watchdog finds that requests could be admitted and are not.",
        &[],
    ),
    count("firstlight_stalls_total", "Stalls that the watchdog found.", &[]),
    level("firstlight_budget_limit", "Limits of the budget in force.", &["limit"]),
    level("firstlight_budget_version", "Version of the budget in force.", &[]),
    level("firstlight_budget_leased", "1 while a lease overrides the base budget.", &[]),
];

const fn count(name: &'static str, help: &'static str, labels: &'static [&'static str]) -> Metric {
    Metric { name, kind: Kind::Counter, unit: Unit::Count, help, labels }
}

const fn seconds(name: &'static str, help: &'static str, labels: &'static [&'static str]) -> Metric {
    Metric { name, kind: Kind::SecondsCounter, unit: Unit::Seconds, help, labels }
}

const fn level(name: &'static str, help: &'static str, labels: &'static [&'static str]) -> Metric {
    gauge_of(name, Unit::Count, help, labels)
}

const fn gauge_of(
    name: &'static str,
    unit: Unit,
    help: &'static str,
    labels: &'static [&'static str],
) -> Metric {
    Metric { name, kind: Kind::Gauge, unit, help, labels }
}

const fn histogram_of(
    name: &'static str,
    unit: Unit,
    help: &'static str,
    buckets: &'static [f64],
    labels: &'static [&'static str],
) -> Metric {
    Metric { name, kind: Kind::Histogram(buckets), unit, help, labels }
}

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

/// Whether TTFT kept to `--slo-ttft`, as `ttft_band`.
const BANDS: [&str; 2] = ["ok", "slo_miss"];

/// Handles to the metrics of events, registered once: a look-up by name costs more than the event.
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
    /// Time between tokens.
    pub itl: Histogram,
    /// Whole requests.
    pub latency: Histogram,
    /// First tokens without a split.
    pub unsplit: Counter,
    /// Spans lost by slow watchers.
    pub spans_dropped: Counter,
    /// Stalls found.
    pub stalls: Counter,
    /// Whether stalled now.
    pub stalled: Gauge,
    preemptions: Counter,
    lost: Counter,
    outcomes: Vec<(&'static str, Counter)>,
    refusals: Vec<(FailureKind, Counter)>,
    cancels: [Counter; CancelledBy::ALL.len()],
    ttft: [Histogram; 2],
    segments: [[Histogram; 2]; SEGMENTS.len()],
    negatives: [Counter; SEGMENTS.len()],
}

impl Metrics {
    /// Registers every metric of events, so that all are there, at 0, from the start.
    pub fn new() -> Self {
        let outcome = |o: &'static str| (o, counter!("firstlight_requests_finished_total", "outcome" => o));
        let refusal = |k: FailureKind| (k, counter!("firstlight_refusals_total", "kind" => k.label()));
        Self {
            received: counter!("firstlight_requests_received_total"),
            queued: counter!("firstlight_requests_queued_total"),
            prompt_tokens: counter!("firstlight_prompt_tokens_total"),
            output_tokens: counter!("firstlight_output_tokens_total"),
            rounds: counter!("firstlight_rounds_total"),
            round_requests: histogram!("firstlight_round_requests"),
            itl: histogram!("firstlight_itl_seconds"),
            latency: histogram!("firstlight_latency_seconds"),
            unsplit: counter!("firstlight_ttft_unsplit_total"),
            spans_dropped: counter!("firstlight_spans_dropped_total"),
            stalls: counter!("firstlight_stalls_total"),
            stalled: gauge!("firstlight_stalled"),
            preemptions: counter!("firstlight_preemptions_total"),
            lost: counter!("firstlight_attempts_lost_total"),
            outcomes: FINISHES
                .into_iter()
                .chain(FailureKind::all().map(|k| k.label()))
                .map(outcome)
                .collect(),
            refusals: FailureKind::all().map(refusal).collect(),
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
        self.refusals.iter().filter(|(k, _)| *k == kind).for_each(|(_, counter)| counter.increment(1));
    }

    /// A queued request ended.
    pub fn finished(&self, outcome: &str) {
        self.outcomes.iter().filter(|(o, _)| *o == outcome).for_each(|(_, counter)| counter.increment(1));
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
    pub fn first_token(&self, ttft_ns: i64, missed_slo: bool, segments: Option<&[(&'static str, i64)]>) {
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

/// What the engines look like at one moment.
pub struct EngineGauges<'a> {
    /// Its name.
    pub name: &'a str,
    /// Blocks in its pool.
    pub kv_blocks: u32,
    /// Blocks free, as it last said.
    pub kv_blocks_free: u32,
    /// Blocks left to promise.
    pub kv_blocks_left: u32,
    /// Its active requests.
    pub active: u32,
    /// Its clock.
    pub clock: Option<&'a v1::ClockOffset>,
}

/// Brings the gauges of the core up to date.
pub fn set_gauges(core: &Gauges, engines: &[EngineGauges<'_>]) {
    gauge!("firstlight_pending_requests").set(core.pending as f64);
    gauge!("firstlight_active_requests").set(f64::from(core.active));
    gauge!("firstlight_engines_attached").set(engines.len() as f64);
    let blocks: u64 = engines.iter().map(|e| u64::from(e.kv_blocks)).sum();
    let free: u64 = engines.iter().map(|e| u64::from(e.kv_blocks_free)).sum();
    gauge!("firstlight_kv_utilization_ratio").set(blocks.saturating_sub(free) as f64 / blocks.max(1) as f64);
    for engine in engines {
        let set =
            |name: &'static str, value: f64| gauge!(name, "engine" => engine.name.to_owned()).set(value);
        set("firstlight_link_active_requests", engine.active.into());
        set("firstlight_link_kv_blocks", engine.kv_blocks.into());
        set("firstlight_link_kv_blocks_free", engine.kv_blocks_free.into());
        set("firstlight_link_kv_blocks_left", engine.kv_blocks_left.into());
        if let Some(clock) = engine.clock {
            set("firstlight_clock_offset_seconds", in_seconds(clock.offset_ns));
            set("firstlight_clock_bound_seconds", in_seconds(clock.bound_ns));
        }
    }
}

/// Tells the budget in force.
pub fn set_budget(budget: &Budget, version: u64, leased: bool, step_prefill_tokens: u32) {
    let limits = [
        ("prefill_max_batch_size", budget.prefill_max_batch_size),
        ("prefill_max_tokens", budget.prefill_max_tokens.0),
        ("max_batch_size", budget.max_batch_size),
        ("step_prefill_tokens", step_prefill_tokens),
        ("max_active_requests", budget.max_active_requests),
        ("max_pending", budget.max_pending),
        ("admit_ahead", budget.admit_ahead),
    ];
    for (limit, value) in limits {
        gauge!("firstlight_budget_limit", "limit" => limit).set(f64::from(value));
    }
    gauge!("firstlight_budget_version").set(version as f64);
    gauge!("firstlight_budget_leased").set(if leased { 1.0 } else { 0.0 });
}

/// An engine was attached, or lost, so many times.
pub fn count_engine(name: &'static str, engine: &str, times: u64) {
    counter!(name, "engine" => engine.to_owned()).increment(times);
}

/// Nanoseconds in seconds.
pub fn in_seconds(ns: i64) -> f64 {
    ns as f64 / 1e9
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_carry_their_unit() {
        let names: std::collections::BTreeSet<_> = ALL.iter().map(|m| m.name).collect();
        assert_eq!(names.len(), ALL.len());
        for metric in ALL {
            assert!(metric.name.starts_with("firstlight_"), "{}", metric.name);
            let counts = matches!(metric.kind, Kind::Counter | Kind::SecondsCounter);
            assert_eq!(metric.name.ends_with("_total"), counts, "{}", metric.name);
            assert_eq!(metric.name.contains("_seconds"), metric.unit == Unit::Seconds, "{}", metric.name);
        }
    }

    #[test]
    fn all_that_is_recorded_is_declared_and_no_histogram_is_a_summary() {
        let declared =
            |name: &str| ALL.iter().find(|m| m.name == name).unwrap_or_else(|| panic!("{name}")).kind;
        let mut builder = metrics_exporter_prometheus::PrometheusBuilder::new();
        for metric in ALL {
            if let Kind::Histogram(buckets) = metric.kind {
                let name = metrics_exporter_prometheus::Matcher::Full(metric.name.into());
                builder = builder.set_buckets_for_metric(name, buckets).unwrap();
            }
        }
        let recorder = builder.build_recorder();
        metrics::with_local_recorder(&recorder, || {
            let metrics = Metrics::new();
            metrics.first_token(5, false, Some(&SEGMENTS.map(|segment| (segment, -1))));
            for histogram in [&metrics.itl, &metrics.latency, &metrics.round_requests] {
                histogram.record(1.0);
            }
            let now = firstlight_proto::clock::Stamp::from_ns(1);
            let core = crate::admission::Admission::new(Budget::default(), now).unwrap();
            let clock = v1::ClockOffset::default();
            let engine = EngineGauges {
                name: "e",
                kv_blocks: 4,
                kv_blocks_free: 2,
                kv_blocks_left: 1,
                active: 3,
                clock: Some(&clock),
            };
            set_gauges(&core.gauges(now), &[engine]);
            set_budget(&Budget::default(), 1, false, 2048);
            count_engine("firstlight_link_attachments_total", "e", 1);
            count_engine("firstlight_link_losses_total", "e", 1);
        });
        let page = recorder.handle().render();
        let types: Vec<_> = page.lines().filter_map(|line| line.strip_prefix("# TYPE ")).collect();
        for line in &types {
            let (name, kind) = line.split_once(' ').unwrap();
            let expected = match declared(name) {
                Kind::Counter | Kind::SecondsCounter => "counter",
                Kind::Gauge => "gauge",
                Kind::Histogram(_) => "histogram",
            };
            assert_eq!(kind, expected, "{name}");
        }
        assert_eq!(types.len() + 1, ALL.len(), "all but the appended counter of seconds are on the page");
        assert!(page.contains("firstlight_kv_utilization_ratio 0.5"), "{page}");
    }
}
