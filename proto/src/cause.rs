//! Why a request waited: the words used in output, metrics labels and JSON.

use crate::v1::Cause;

/// Every cause, in the order they are printed.
pub const ALL: [Cause; 11] = [
    Cause::MaxActive,
    Cause::KvBlocks,
    Cause::TokenBudget,
    Cause::BatchSize,
    Cause::FairShare,
    Cause::EngineBusy,
    Cause::NoEngine,
    Cause::RoundTrip,
    Cause::DecodeFirst,
    Cause::EngineLost,
    Cause::Preempted,
];

impl Cause {
    /// The cause's name in metrics labels, JSON and text.
    pub fn label(self) -> &'static str {
        match self {
            Self::Unspecified => "unspecified",
            Self::MaxActive => "max_active",
            Self::KvBlocks => "kv_blocks",
            Self::TokenBudget => "token_budget",
            Self::BatchSize => "batch_size",
            Self::FairShare => "fair_share",
            Self::EngineBusy => "engine_busy",
            Self::NoEngine => "no_engine",
            Self::RoundTrip => "round_trip",
            Self::DecodeFirst => "decode_first",
            Self::EngineLost => "engine_lost",
            Self::Preempted => "preempted",
        }
    }

    /// The budget limit to raise when this cause dominates; `None` when it is no limit.
    pub fn limit(self) -> Option<&'static str> {
        match self {
            Self::MaxActive => Some("max_active_requests"),
            Self::KvBlocks => Some("kv_blocks"),
            Self::TokenBudget => Some("prefill_max_tokens"),
            Self::BatchSize => Some("prefill_max_batch_size"),
            _ => None,
        }
    }
}
