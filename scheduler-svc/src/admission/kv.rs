//! KV blocks: what a request needs, and what an engine has left to promise.
//!
//! The engine owns the truth about its pool; the scheduler promises from it without counting sharing.
//! - `reserve` promises the worst case, so the promises of all active requests never exceed the pool and
//!   none is ever preempted.
//! - `optimistic` promises the prompt and a margin out of what the engine last reported free, less the
//!   promises that report cannot know of yet. When decoding runs the pool dry the engine preempts its
//!   youngest; no request is larger than the pool, so the oldest can always finish.

use super::{
    book::Entry,
    budget::{Budget, KvPromise},
    report::Geometry,
    request::{Blocks, Request, Tokens},
    round::Need,
};

/// Blocks that hold `positions`.
pub(super) fn blocks(positions: Tokens, block_size: Tokens) -> Blocks {
    Blocks(positions.0.div_ceil(block_size.0.max(1)))
}

/// Blocks a request can come to hold.
pub(super) fn worst(request: &Request, geometry: &Geometry) -> Blocks {
    blocks(request.positions(), geometry.block_size)
}

/// Blocks of an engine that the budget lets us use.
pub(super) fn pool(geometry: &Geometry, budget: &Budget) -> Blocks {
    budget.kv_blocks.map_or(geometry.kv_blocks, |limit| limit.min(geometry.kv_blocks))
}

/// What admitting a request takes: the tokens to prefill (with those it already has), the blocks to promise.
pub(super) fn need(entry: &Entry, geometry: &Geometry, budget: &Budget) -> Need {
    let tokens = entry.request.prompt + entry.generated;
    let promised = match budget.kv_promise {
        KvPromise::Reserve => entry.request.positions(),
        // The margin doubles with each preemption, or a request could be admitted and preempted for ever.
        KvPromise::Optimistic => {
            let margin = u64::from(budget.kv_margin.0.max(1)) << entry.preemptions.min(32);
            let margin = Tokens(u32::try_from(margin).unwrap_or(u32::MAX));
            (tokens + margin).min(entry.request.positions())
        }
    };
    Need { tokens, blocks: blocks(promised, geometry.block_size) }
}

/// Whether an engine could hold the request if it were empty.
pub(super) fn fits(request: &Request, geometry: &Geometry, budget: &Budget) -> bool {
    request.positions() <= geometry.context && worst(request, geometry) <= pool(geometry, budget)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GEOMETRY: Geometry = Geometry {
        context: Tokens(1024),
        block_size: Tokens(16),
        kv_blocks: Blocks(32),
        free_blocks: Blocks(32),
        max_sequences: 64,
    };

    #[test]
    fn a_started_block_is_a_whole_block() {
        assert_eq!(blocks(Tokens(0), Tokens(16)), Blocks(0));
        assert_eq!(blocks(Tokens(16), Tokens(16)), Blocks(1));
        assert_eq!(blocks(Tokens(17), Tokens(16)), Blocks(2));
    }

    #[test]
    fn a_request_fits_up_to_the_smaller_of_context_and_pool() {
        let budget = Budget::default();
        assert!(fits(&Request::new(Tokens(500), Tokens(12)), &GEOMETRY, &budget));
        assert!(!fits(&Request::new(Tokens(500), Tokens(13)), &GEOMETRY, &budget));
        let small_context = Geometry { context: Tokens(100), ..GEOMETRY };
        assert!(!fits(&Request::new(Tokens(100), Tokens(1)), &small_context, &budget));
    }
}
