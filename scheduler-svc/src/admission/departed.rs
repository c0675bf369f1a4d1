//! Engines that were lost and may come back: what each kind could hold, and when the last of it was lost.

use std::time::Duration;

use firstlight_proto::clock::Stamp;

use super::{
    budget::Budget,
    kv,
    report::Geometry,
    request::{Blocks, Request},
};

/// How long requests wait for an engine that could hold them after the last such engine was lost: long enough for one
/// that restarts.
pub const RETURN_GRACE: Duration = Duration::from_secs(30);

/// Kinds of engines remembered.
const KINDS: usize = 64;

/// Kinds of engines that were lost, the latest last.
#[derive(Debug, Default)]
pub(super) struct Departed(Vec<(Geometry, Stamp)>);

impl Departed {
    /// An engine was lost.
    pub fn note(&mut self, geometry: Geometry, now: Stamp) {
        let kind = Geometry { free_blocks: Blocks(0), ..geometry };
        self.0.retain(|(other, _)| *other != kind);
        if self.0.len() == KINDS {
            self.0.remove(0);
        }
        self.0.push((kind, now));
    }

    /// Until when an engine that could hold the request is waited for; `None` when no such engine was lost.
    pub fn awaited_until(&self, request: &Request, budget: &Budget) -> Option<Stamp> {
        let (_, lost) = self.0.iter().rfind(|(kind, _)| kv::fits(request, kind, budget))?;
        Some(*lost + RETURN_GRACE)
    }
}

#[cfg(test)]
mod tests {
    use super::{super::request::Tokens, *};

    fn kind(kv_blocks: u32) -> Geometry {
        Geometry {
            context: Tokens(4096),
            block_size: Tokens(16),
            kv_blocks: Blocks(kv_blocks),
            free_blocks: Blocks(kv_blocks),
            max_sequences: 64,
        }
    }

    #[test]
    fn the_last_engine_lost_that_could_hold_a_request_is_waited_for() {
        let mut departed = Departed::default();
        let budget = Budget::default();
        let large = Request::new(Tokens(1000), Tokens(16));
        for (blocks, at) in [(64, 1), (128, 2), (64, 3), (4, 9)] {
            departed.note(kind(blocks), Stamp::from_ns(at));
        }
        assert_eq!(departed.awaited_until(&large, &budget), Some(Stamp::from_ns(3) + RETURN_GRACE));
        let larger = Request::new(Tokens(2000), Tokens(16));
        assert_eq!(departed.awaited_until(&larger, &budget), Some(Stamp::from_ns(2) + RETURN_GRACE));
        let too_large = Request::new(Tokens(4000), Tokens(16));
        assert_eq!(departed.awaited_until(&too_large, &budget), None);
    }

    #[test]
    fn so_many_kinds_are_remembered_and_no_more() {
        let mut departed = Departed::default();
        for blocks in 0..10 * KINDS as u32 {
            departed.note(kind(blocks), Stamp::from_ns(blocks.into()));
        }
        assert_eq!(departed.0.len(), KINDS);
    }
}
