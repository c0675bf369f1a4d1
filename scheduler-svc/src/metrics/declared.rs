//! Every metric: name, unit, help, labels and buckets together. The only place where these stand.

use firstlight_proto::serve::metrics::{Kind, Metric, TTFT_BUCKETS};
use metrics::Unit;

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

/// Counted with every token, so by its owner.
pub static ITL: Metric = Metric {
    name: "firstlight_itl_seconds",
    kind: Kind::OwnedHistogram(ITL_BUCKETS),
    unit: Unit::Seconds,
    help: "Time between neighbouring tokens.",
    labels: &[],
};

/// Active requests of each engine attached.
pub const LINK_ACTIVE_REQUESTS: Metric =
    of_engine("firstlight_link_active_requests", Unit::Count, "Active requests of an engine.");
/// Blocks of its pool.
pub const LINK_KV_BLOCKS: Metric =
    of_engine("firstlight_link_kv_blocks", Unit::Count, "KV blocks of an engine.");
/// Those that it says are free.
pub const LINK_KV_BLOCKS_FREE: Metric = of_engine(
    "firstlight_link_kv_blocks_free",
    Unit::Count,
    "KV blocks free (unused or evictable) and not due to a begun prompt, as it says.",
);
/// Those that may be promised.
pub const LINK_KV_BLOCKS_LEFT: Metric =
    of_engine("firstlight_link_kv_blocks_left", Unit::Count, "KV blocks left to promise to new requests.");
/// Its clock, once probes have found it.
pub const CLOCK_OFFSET: Metric =
    of_engine("firstlight_clock_offset_seconds", Unit::Seconds, "The engine's clock less ours.");
/// How surely it is known.
pub const CLOCK_BOUND: Metric = of_engine(
    "firstlight_clock_bound_seconds",
    Unit::Seconds,
    "The true clock offset lies within plus or minus this.",
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
    count(
        "firstlight_preemptions_total",
        "Attempts that an engine preempted, or handed back as it drained.",
        &[],
    ),
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
        "firstlight_ttft_failures_total",
        "Queued requests that failed before their first token, by kind of failure.",
        &["kind"],
    ),
    count(
        "firstlight_negative_segments_total",
        "Parts of TTFT that came out negative (clocks are known within a bound only).",
        &["segment"],
    ),
    ITL,
    histogram_of(
        "firstlight_latency_seconds",
        Unit::Seconds,
        "Time from request decoded to its end, for requests that finished.",
        LATENCY_BUCKETS,
        &[],
    ),
    count(
        "firstlight_tenant_requests_total",
        "Requests queued, by tenant: those named with --tenants, all others as `other`.",
        &["tenant"],
    ),
    count(
        "firstlight_tenant_output_tokens_total",
        "Tokens received from engines for requests that ended, by tenant.",
        &["tenant"],
    ),
    histogram_of(
        "firstlight_tenant_queue_wait_seconds",
        Unit::Seconds,
        "Segment queue_wait by tenant, observed at the first token.",
        TTFT_BUCKETS,
        &["tenant"],
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
    LINK_ACTIVE_REQUESTS,
    LINK_KV_BLOCKS,
    LINK_KV_BLOCKS_FREE,
    LINK_KV_BLOCKS_LEFT,
    count("firstlight_link_attachments_total", "Attachments of an engine, the first included.", &["engine"]),
    count("firstlight_link_losses_total", "Attachments of an engine that ended.", &["engine"]),
    CLOCK_OFFSET,
    CLOCK_BOUND,
    count("firstlight_spans_dropped_total", "Spans and forwards that slow watchers lost.", &[]),
    count("firstlight_traces_exported_total", "Traces that the collector (--otlp-endpoint) took.", &[]),
    count(
        "firstlight_traces_dropped_total",
        "Traces that were to be exported and were not: the queue was full, the collector unreachable or unwilling.",
        &["reason"],
    ),
    level(
        "firstlight_stalled",
        "1 while the watchdog finds that requests could be admitted and are not.",
        &[],
    ),
    count("firstlight_stalls_total", "Stalls that the watchdog found.", &[]),
    level("firstlight_budget_limit", "Limits of the budget in force.", &["limit"]),
    level("firstlight_budget_version", "Version of the budget in force.", &[]),
    count(
        "firstlight_adaptive_gaps_total",
        "Gaps between decode forwards with a prefill in between, as the adaptive policy saw them.",
        &[],
    ),
    count("firstlight_adaptive_gaps_over_target_total", "Those longer than the ITL target.", &[]),
    histogram_of(
        "firstlight_shadow_ttft_seconds",
        Unit::Seconds,
        "What firstlight_ttft_seconds would be under the shadow's budget, as replayed on the live arrivals.",
        TTFT_BUCKETS,
        &["shadow"],
    ),
    level(
        "firstlight_shadow_cost_error_ratio",
        "Mean error of the costs that the shadow replays with, as a share of what forwards took.",
        &["shadow"],
    ),
    count("firstlight_shadow_dropped_total", "News that the shadow was too slow for.", &["shadow"]),
    level("firstlight_budget_leased", "1 while a lease overrides the base budget.", &[]),
];

const fn count(name: &'static str, help: &'static str, labels: &'static [&'static str]) -> Metric {
    Metric { name, kind: Kind::Counter, unit: Unit::Count, help, labels }
}

const fn seconds(name: &'static str, help: &'static str, labels: &'static [&'static str]) -> Metric {
    Metric { name, kind: Kind::SecondsCounter, unit: Unit::Seconds, help, labels }
}

const fn level(name: &'static str, help: &'static str, labels: &'static [&'static str]) -> Metric {
    Metric { name, kind: Kind::Gauge, unit: Unit::Count, help, labels }
}

const fn of_engine(name: &'static str, unit: Unit, help: &'static str) -> Metric {
    Metric { name, kind: Kind::OwnedGauge, unit, help, labels: &["engine"] }
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
