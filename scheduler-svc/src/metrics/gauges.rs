//! Gauges of the core, the engines and the budget: set when a scrape asks, by whoever owns them.

use firstlight_proto::v1;
use metrics::{counter, gauge};

use super::in_seconds;
use crate::admission::{Budget, Gauges};

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
