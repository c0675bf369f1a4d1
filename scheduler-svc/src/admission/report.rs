//! What engines report, and what a report makes happen to requests.

use firstlight_proto::clock::Stamp;

use super::request::{Blocks, Key, Tokens};

/// One attachment of an engine: the stream's attachment id, new for each stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EngineId(pub u64);

/// What an engine can hold, from its `Hello`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Most positions of a sequence.
    pub context: Tokens,
    /// Tokens per KV block, ≥ 1.
    pub block_size: Tokens,
    /// Blocks that sequences may use.
    pub kv_blocks: Blocks,
    /// Blocks free at attachment.
    pub free_blocks: Blocks,
    /// Most sequences held at once, ≥ 1.
    pub max_sequences: u32,
}

/// Something an engine, or its link, told us.
#[derive(Clone, Debug, PartialEq)]
pub enum Report {
    /// A new attachment, with nothing in it.
    Attached {
        /// Its id.
        engine: EngineId,
        /// What it can hold.
        geometry: Geometry,
    },
    /// The attachment ended; its sequences are gone.
    Lost {
        /// Its id.
        engine: EngineId,
    },
    /// The engine drains, for good: it is sent no more rounds, and what it has goes on.
    Draining {
        /// Who.
        engine: EngineId,
    },
    /// The round's first prompt row runs: its credit is free again.
    Begun {
        /// Who.
        engine: EngineId,
        /// The round's number.
        seq: u64,
    },
    /// The engine cannot take this request and holds nothing of it. The request leaves the core.
    Rejected {
        /// Which.
        key: Key,
    },
    /// A forward ended, or rows ended between forwards.
    Step(Step),
}

/// What one forward did.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// Who.
    pub engine: EngineId,
    /// Rows that produced tokens or ended.
    pub rows: Vec<Row>,
    /// Blocks free after it (unused + evictable), less those that begun prompts have yet to take.
    pub free_blocks: Blocks,
    /// The last round that `free_blocks` includes.
    pub last_seq: u64,
    /// Its work and timing; `None` when there was no forward.
    pub forward: Option<Forward>,
}

/// One row of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// Whose.
    pub key: Key,
    /// Tokens it produced.
    pub tokens: Tokens,
    /// Whether and how it ended.
    pub end: Option<End>,
}

/// How a row left the engine. Its blocks are free again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// For good: length, EOS, stop token, cancelled or failed.
    Finished,
    /// The pool ran dry, or it had not begun when the engine drained: it is queued anew, at the front, with its
    /// tokens kept.
    Preempted,
}

/// Work and timing of a forward, on the engine's clock (only differences are used).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Forward {
    /// When it started.
    pub start: Stamp,
    /// When its tokens were on the host.
    pub end: Stamp,
    /// Prompt tokens computed.
    pub prefill_tokens: Tokens,
    /// Rows that decoded.
    pub decode_rows: u32,
}

/// A request that was active and is pending again, at the front of its lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Requeued {
    /// Which.
    pub key: Key,
    /// Why its attempt died.
    pub why: Loss,
    /// When that attempt was admitted.
    pub admitted: Stamp,
    /// Tokens received so far; when there are any, what follows is a resume and not part of TTFT.
    pub generated: Tokens,
}

/// Why an attempt died.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Loss {
    /// Its engine went away.
    EngineLost,
    /// Its engine needed the blocks, or drained before the attempt began.
    Preempted,
}

impl From<Loss> for firstlight_proto::v1::Cause {
    fn from(loss: Loss) -> Self {
        match loss {
            Loss::EngineLost => Self::EngineLost,
            Loss::Preempted => Self::Preempted,
        }
    }
}
