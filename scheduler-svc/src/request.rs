//! A request that passed validation and tokenization.

use std::sync::Arc;

use firstlight_proto::{clock::Stamp, v1};

use crate::{admission::Tenant, otlp::TraceParent};

/// What is asked for. Stop strings are not here: they concern the text, which only the client's stream knows.
#[derive(Clone, Debug)]
pub struct Ask {
    /// Names the request everywhere.
    pub id: Arc<str>,
    /// Groups the requests of one run.
    pub run_label: Arc<str>,
    /// Prompt, at least one token.
    pub prompt: Vec<u32>,
    /// Most tokens to generate, ≥ 1.
    pub max_new: u32,
    /// How tokens are chosen; its seed is set.
    pub sampling: v1::Sampling,
    /// Generation ends at one of these.
    pub stop_token_ids: Vec<u32>,
    /// Go on past the model's end-of-sequence tokens.
    pub ignore_eos: bool,
    /// Neither read nor fill the prefix cache.
    pub no_prefix_cache: bool,
    /// `x-class`; empty when there is none.
    pub class: String,
    /// Who asks.
    pub tenant: Tenant,
    /// When its caller stops waiting.
    pub deadline: Option<Stamp>,
    /// Stamp 2: decoded.
    pub received: Stamp,
    /// The caller's trace.
    pub trace: Option<TraceParent>,
}

impl Tenant {
    /// The tenant of that name (`x-tenant`); no name is a tenant too. Tenants are told apart by a hash of their
    /// names: no table that clients could make grow.
    pub fn named(name: &str) -> Self {
        let fnv1a =
            name.bytes().fold(0x811c_9dc5_u32, |hash, b| (hash ^ u32::from(b)).wrapping_mul(0x0100_0193));
        Self(if name.is_empty() { 0 } else { fnv1a })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tenants_are_told_apart() {
        assert_eq!(Tenant::named(""), Tenant(0));
        assert_ne!(Tenant::named("a"), Tenant::named("b"));
    }
}
