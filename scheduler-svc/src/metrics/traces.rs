//! What became of the traces that were to be exported.

use metrics::{Counter, counter};

/// Why a trace was not exported, as `reason`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TraceDrop {
    /// The queue was full: the collector is slower than the load.
    QueueFull,
    /// The collector did not answer, or failed.
    Unreachable,
    /// The collector refused it.
    Refused,
}

impl TraceDrop {
    const ALL: [Self; 3] = [Self::QueueFull, Self::Unreachable, Self::Refused];

    fn label(self) -> &'static str {
        match self {
            Self::QueueFull => "queue_full",
            Self::Unreachable => "unreachable",
            Self::Refused => "refused",
        }
    }
}

/// Handles, registered once.
#[derive(Clone, Debug)]
pub struct TraceMetrics {
    exported: Counter,
    dropped: [Counter; TraceDrop::ALL.len()],
}

impl TraceMetrics {
    /// Registers all, so that they are there, at 0, from the start.
    pub fn new() -> Self {
        Self {
            exported: counter!("firstlight_traces_exported_total"),
            dropped: TraceDrop::ALL
                .map(|why| counter!("firstlight_traces_dropped_total", "reason" => why.label())),
        }
    }

    /// A collector took so many traces.
    pub fn exported(&self, traces: u64) {
        self.exported.increment(traces);
    }

    /// So many traces were not exported.
    pub fn dropped(&self, why: TraceDrop, traces: u64) {
        self.dropped[why as usize].increment(traces);
    }
}

impl Default for TraceMetrics {
    fn default() -> Self {
        Self::new()
    }
}
