//! A planned forward, and what became of its rows.

use super::{BatchId, SeqId};
use crate::kv::BlockCopy;

/// What a forward executes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ForwardKind {
    /// Chunks of prompts.
    Prefill,
    /// One token of each row, and drafts.
    Decode,
    /// Both.
    Mixed,
}

impl ForwardKind {
    /// The kind's name in metrics and logs.
    pub fn label(self) -> &'static str {
        match self {
            Self::Prefill => "prefill",
            Self::Decode => "decode",
            Self::Mixed => "mixed",
        }
    }
}

/// Rows to execute together, and what has to happen before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForwardPlan {
    /// What it executes.
    pub kind: ForwardKind,
    /// Chunks, at most one per sequence, and behind them single tokens that are drafts.
    pub rows: Vec<Row>,
    /// Copies to make before it, in order.
    pub copies: Vec<BlockCopy>,
    /// Batches that leave the inbox with it.
    pub begun: Vec<BatchId>,
    /// Sequences that gave way: forgotten, their blocks free.
    pub preempted: Vec<SeqId>,
    /// Prompt tokens that its beginning sequences found in the prefix cache.
    pub cached_tokens: usize,
}

impl ForwardPlan {
    pub(super) fn new(kind: ForwardKind) -> Self {
        Self {
            kind,
            rows: Vec::new(),
            copies: Vec::new(),
            begun: Vec::new(),
            preempted: Vec::new(),
            cached_tokens: 0,
        }
    }

    /// Prompt tokens it computes.
    pub fn prefill_tokens(&self) -> usize {
        self.rows.iter().filter(|row| row.prompt).map(|row| row.len).sum()
    }

    /// Sum of its rows' KV lengths after it, in tokens.
    pub fn kv_tokens(&self) -> usize {
        self.rows.iter().map(Row::end).sum()
    }
}

/// Neighbouring positions of one sequence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Row {
    /// The sequence.
    pub id: SeqId,
    /// First position.
    pub start: usize,
    /// Positions, at least one.
    pub len: usize,
    /// They belong to the prompt (or to the output it was resumed with).
    pub prompt: bool,
    /// The sequence's first row since its admission.
    pub begins: bool,
    /// A token is sampled after the last position.
    pub samples: bool,
    /// The token at its one position, where that is a guess and not the sequence's yet.
    pub draft: Option<u32>,
}

impl Row {
    /// Positions filled once it has run.
    pub fn end(&self) -> usize {
        self.start + self.len
    }
}

/// What a forward brought for a row that sampled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outcome {
    /// The sequence.
    pub id: SeqId,
    /// Its new token; `None` when it failed.
    pub token: Option<u32>,
    /// The first since its admission.
    pub first: bool,
    /// It was sampled after a draft that turned out right.
    pub drafted: bool,
    /// Why it ended, if it did.
    pub end: Option<End>,
}

/// Why a sequence ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum End {
    /// All its tokens are generated.
    Length,
    /// The model's end-of-sequence token.
    Eos,
    /// One of its stop tokens.
    StopToken,
    /// Its blocks were needed by an older one.
    Preempted,
    /// Its scheduler cancelled it, or went away.
    Cancelled,
    /// The backend failed on it.
    Failed,
}

impl End {
    /// The end's name in metrics, spans and logs.
    pub fn label(self) -> &'static str {
        match self {
            Self::Length => "length",
            Self::Eos => "eos",
            Self::StopToken => "stop_token",
            Self::Preempted => "preempted",
            Self::Cancelled => "cancelled",
            Self::Failed => "bug",
        }
    }
}
