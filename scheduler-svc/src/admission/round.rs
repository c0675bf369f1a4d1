//! A round: what one call of `plan` admits, and what is left of each limit while it is put together.

use firstlight_proto::clock::Stamp;

use super::{
    cause::{ByCause, Cause},
    report::EngineId,
    request::{Blocks, Key, Tokens},
};

/// A batch to send to an engine now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Round {
    /// Where to.
    pub engine: EngineId,
    /// Its number on that attachment: 1, 2, 3 …
    pub seq: u64,
    /// When it was planned: stamp 4 of its requests.
    pub at: Stamp,
    /// The requests, in the order to send them.
    pub batch: Vec<Admitted>,
    /// The limit that refused the next request; `None` when all pending requests were taken.
    pub bound_by: Option<Cause>,
    /// Version of the budget in force.
    pub budget_version: u64,
}

/// One request of a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Admitted {
    /// Which.
    pub key: Key,
    /// Its wait, by cause.
    pub waited: Waited,
    /// Tokens it already has from an earlier attempt: they follow the prompt. Above zero, `waited` counts
    /// from its last re-queueing and belongs to the resume, not to TTFT.
    pub generated: Tokens,
}

/// How long a request was pending, and why.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Waited {
    /// Pending time by cause, ns; sums exactly to the pending periods (stamps 3 → 4, less `lost`).
    pub by_cause: ByCause,
    /// The part before it reached the head of its lane, ns. A second cut, not a cause.
    pub behind: i64,
    /// Time in attempts whose engine was lost before the first token, ns.
    pub engine_lost: i64,
    /// Time in attempts that were preempted before the first token, ns.
    pub preempted: i64,
}

/// What is left of each limit while a round is put together.
#[derive(Clone, Copy, Debug)]
pub(super) struct Room {
    /// Requests that may still become active.
    pub active: u32,
    /// Blocks that may still be promised.
    pub blocks: Blocks,
    /// Prompt tokens left in the round's budget.
    pub tokens: Tokens,
    /// Places left in the batch.
    pub places: u32,
    /// No request is in the batch yet.
    pub empty: bool,
}

/// What a request needs of a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Need {
    /// Tokens to prefill.
    pub tokens: Tokens,
    /// Blocks to promise.
    pub blocks: Blocks,
}

impl Room {
    /// The first limit, in the order they are blamed, that refuses `need`.
    pub fn refusal(&self, need: Need) -> Option<Cause> {
        if self.active == 0 {
            Some(Cause::MaxActive)
        } else if need.blocks > self.blocks {
            Some(Cause::KvBlocks)
        } else if need.tokens > self.tokens && !self.empty {
            Some(Cause::TokenBudget)
        } else if self.places == 0 {
            Some(Cause::BatchSize)
        } else {
            None
        }
    }

    /// Takes `need` out; it was not refused.
    pub fn take(&mut self, need: Need) {
        debug_assert_eq!(self.refusal(need), None);
        self.active -= 1;
        self.blocks.0 -= need.blocks.0;
        self.tokens.0 = self.tokens.0.saturating_sub(need.tokens.0);
        self.places -= 1;
        self.empty = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOM: Room = Room { active: 2, blocks: Blocks(8), tokens: Tokens(100), places: 2, empty: true };

    #[test]
    fn a_request_larger_than_the_token_budget_goes_alone() {
        let mut room = ROOM;
        let large = Need { tokens: Tokens(500), blocks: Blocks(4) };
        assert_eq!(room.refusal(large), None);
        room.take(large);
        assert_eq!(room.refusal(Need { tokens: Tokens(1), blocks: Blocks(1) }), Some(Cause::TokenBudget));
    }

    #[test]
    fn of_several_limits_the_first_in_order_is_blamed() {
        let over_all = Need { tokens: Tokens(500), blocks: Blocks(9) };
        let full = Room { active: 0, places: 0, empty: false, ..ROOM };
        assert_eq!(full.refusal(over_all), Some(Cause::MaxActive));
        assert_eq!(Room { active: 1, ..full }.refusal(over_all), Some(Cause::KvBlocks));
        let fits = Need { blocks: Blocks(1), ..over_all };
        assert_eq!(Room { active: 1, ..full }.refusal(fits), Some(Cause::TokenBudget));
        assert_eq!(
            Room { active: 1, ..full }.refusal(Need { tokens: Tokens(1), ..fits }),
            Some(Cause::BatchSize)
        );
    }
}
