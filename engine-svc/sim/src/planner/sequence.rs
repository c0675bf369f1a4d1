//! What a sequence is inside the engine, and when it ends.

use super::End;
use crate::kv::{BlockTable, pool::PrefixHash};

/// Names a sequence while it is in the engine: a small index that the caller chooses and may reuse afterwards.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SeqId(pub u32);

impl SeqId {
    pub(super) fn index(self) -> usize {
        self.0 as usize
    }
}

/// Names a batch in the inbox, chosen by the caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BatchId(pub u64);

/// A sequence as it is admitted; already checked: it fits the context and the pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewSequence {
    /// Prompt, followed by the output already generated when a request is resumed; at least one.
    pub tokens: Vec<u32>,
    /// Tokens to generate, at least 1.
    pub max_new_tokens: usize,
    /// Ids that end it, kept as its last token.
    pub stop_token_ids: Vec<u32>,
    /// Goes on past the model's EOS.
    pub ignore_eos: bool,
    /// Reads and fills the prefix cache.
    pub prefix_cache: bool,
}

/// A sequence in the engine.
#[derive(Debug, Clone)]
pub struct Sequence {
    pub(super) tokens: Vec<u32>,
    pub(super) prompt_len: usize,
    pub(super) generated: usize,
    /// Positions that have their keys and values.
    pub(super) computed: usize,
    /// Prompt positions found in the prefix cache.
    pub(super) cached: usize,
    pub(super) table: BlockTable,
    pub(super) hashes: Vec<PrefixHash>,
    pub(super) age: u64,
    /// Its first prompt row was planned.
    pub(super) begun: bool,
    pub(super) prefix_cache: bool,
    max_new_tokens: usize,
    stop_token_ids: Vec<u32>,
    ignore_eos: bool,
}

impl Sequence {
    pub(super) fn new(new: NewSequence, age: u64, hashes: Vec<PrefixHash>) -> Self {
        Self {
            prompt_len: new.tokens.len(),
            tokens: new.tokens,
            generated: 0,
            computed: 0,
            cached: 0,
            table: BlockTable::default(),
            hashes,
            age,
            begun: false,
            prefix_cache: new.prefix_cache,
            max_new_tokens: new.max_new_tokens,
            stop_token_ids: new.stop_token_ids,
            ignore_eos: new.ignore_eos,
        }
    }

    /// Prompt and output so far.
    pub fn tokens(&self) -> &[u32] {
        &self.tokens
    }

    /// Tokens to prefill: the prompt, and the output it was resumed with.
    pub fn prompt_len(&self) -> usize {
        self.prompt_len
    }

    /// Tokens generated since its admission.
    pub fn generated(&self) -> usize {
        self.generated
    }

    /// Most tokens still to be generated.
    pub(super) fn left_to_generate(&self) -> usize {
        self.max_new_tokens - self.generated
    }

    /// Prompt positions found in the prefix cache.
    pub fn cached(&self) -> usize {
        self.cached
    }

    /// Block ids that hold its positions.
    pub fn blocks(&self) -> &[u32] {
        self.table.ids()
    }

    /// Appends a sampled token; tells whether and why the sequence ends with it.
    pub(super) fn push(&mut self, token: u32, eos_ids: &[u32]) -> Option<End> {
        self.tokens.push(token);
        self.generated += 1;
        if self.stop_token_ids.contains(&token) {
            Some(End::StopToken)
        } else if !self.ignore_eos && eos_ids.contains(&token) {
            Some(End::Eos)
        } else {
            (self.generated >= self.max_new_tokens).then_some(End::Length)
        }
    }
}
