//! What a shadow predicts, and how far it is to be trusted.

use metrics::{Counter, Gauge, Histogram, counter, gauge, histogram};

/// Handles to a shadow's metrics.
#[derive(Clone, Debug)]
pub struct ShadowMetrics {
    /// Predicted TTFT, s.
    pub ttft: Histogram,
    /// Mean relative error of its costs.
    pub cost_error: Gauge,
    /// News that it was too slow for.
    pub dropped: Counter,
}

impl ShadowMetrics {
    /// The metrics of the shadow of this name.
    pub fn new(name: &str) -> Self {
        let label = || name.to_owned();
        Self {
            ttft: histogram!("firstlight_shadow_ttft_seconds", "shadow" => label()),
            cost_error: gauge!("firstlight_shadow_cost_error_ratio", "shadow" => label()),
            dropped: counter!("firstlight_shadow_dropped_total", "shadow" => label()),
        }
    }
}
