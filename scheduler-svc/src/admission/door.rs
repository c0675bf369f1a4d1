//! The door: what is refused before it is queued, and why.

use std::time::Duration;

use firstlight_proto::error::Failure;

use super::{
    budget::Budget,
    departed::RETURN_GRACE,
    engines::Engines,
    kv,
    request::{Request, Tokens},
};

/// Why a request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// No attached engine could hold it, even alone.
    #[error(transparent)]
    NeverFits(#[from] NeverFits),
    /// Too many requests wait.
    #[error("{pending} requests wait (max_pending {max_pending})")]
    Full {
        /// Requests pending.
        pending: usize,
        /// The limit.
        max_pending: u32,
        /// When it is likely to be let in, from the measured drain rate.
        retry_after: Duration,
    },
    /// It was queued, the engines that could hold it were lost, and none came back in time.
    #[error("no engine that could hold it has come back for {} s", RETURN_GRACE.as_secs())]
    EnginesGone,
    /// Policy `deadline`: its first token cannot come before its deadline.
    #[error("deadline cannot be met: short by {:.1} ms", short_by.as_secs_f64() * 1e3)]
    Deadline {
        /// By how much it is too late.
        short_by: Duration,
    },
}

/// A limit that a request exceeds even when it is alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{limit} is {have}, the request needs {need}: {remedy}")]
pub struct NeverFits {
    /// Name of the limit: `context` (tokens) or `kv_blocks` (blocks).
    pub limit: &'static str,
    /// Its value.
    pub have: u64,
    /// What the request needs of it.
    pub need: u64,
    /// The smallest change that would admit it.
    pub remedy: Remedy,
}

/// The smallest change to a request that would let it fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Remedy {
    /// Generate less.
    #[error("lower max_new_tokens to {}", .0.0)]
    LowerMaxNewTo(Tokens),
    /// The prompt alone is too long, even for one new token.
    #[error("shorten the prompt by {} tokens and ask for 1 new token", .0.0)]
    ShortenPromptBy(Tokens),
}

impl From<Refused> for Failure {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::NeverFits(NeverFits { limit, have, need, remedy }) => {
                Self::NeverFits { limit, have, need, remedy: remedy.to_string() }
            }
            Refused::Full { retry_after, .. } => Self::Full { reason: refused.to_string(), retry_after },
            Refused::EnginesGone => {
                Self::Unavailable { reason: refused.to_string(), retry_after: RETURN_GRACE }
            }
            Refused::Deadline { .. } => Self::Deadline(refused.to_string()),
        }
    }
}

/// The limit that no attached engine meets; `None` when one could hold the request, or none is attached.
pub(super) fn never_fits(request: &Request, engines: &Engines, budget: &Budget) -> Option<NeverFits> {
    if engines.could_hold(request, budget)? {
        return None;
    }
    let (most, geometry) = engines.largest(budget)?;
    let remedy = if request.prompt < most {
        Remedy::LowerMaxNewTo(Tokens(most.0 - request.prompt.0))
    } else {
        Remedy::ShortenPromptBy(Tokens(request.prompt.0 - most.0.saturating_sub(1)))
    };
    let blocks = (kv::pool(geometry, budget), kv::worst(request, geometry));
    Some(if blocks.1 > blocks.0 {
        NeverFits { limit: "kv_blocks", have: blocks.0.0.into(), need: blocks.1.0.into(), remedy }
    } else {
        let need = request.positions().0.into();
        NeverFits { limit: "context", have: geometry.context.0.into(), need, remedy }
    })
}
