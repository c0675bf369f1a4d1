//! Gauges of the core, of all engines together and of the budget: set when a scrape asks, by whoever owns them.

use metrics::{counter, gauge};

use super::EngineGauges;
use crate::admission::{Budget, Gauges};

/// Brings the gauges of the core up to date.
pub fn set_gauges(core: &Gauges, engines: &[EngineGauges<'_>]) {
    gauge!("firstlight_pending_requests").set(core.pending as f64);
    gauge!("firstlight_active_requests").set(f64::from(core.active));
    gauge!("firstlight_engines_attached").set(engines.len() as f64);
    let blocks: u64 = engines.iter().map(|e| u64::from(e.kv_blocks)).sum();
    let free: u64 = engines.iter().map(|e| u64::from(e.kv_blocks_free)).sum();
    gauge!("firstlight_kv_utilization_ratio").set(blocks.saturating_sub(free) as f64 / blocks.max(1) as f64);
    counter!("firstlight_adaptive_gaps_total").absolute(core.controller.gaps);
    counter!("firstlight_adaptive_gaps_over_target_total").absolute(core.controller.over_target);
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
