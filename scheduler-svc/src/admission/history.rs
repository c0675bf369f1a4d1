//! What happened lately, in bounded memory: who was admitted when and with how much, and what lanes were
//! charged when. [`explain`](super::explain) reads it.

use std::collections::VecDeque;

use firstlight_proto::clock::Stamp;

use super::{
    cause::Cause,
    report::{EngineId, Loss},
    request::{Blocks, Key, Tokens},
};

/// The last so many of something, numbered from 0.
#[derive(Debug)]
pub(super) struct Recent<T> {
    kept: VecDeque<T>,
    first: u64,
    most: usize,
}

impl<T> Recent<T> {
    pub fn new(most: usize) -> Self {
        Self { kept: VecDeque::with_capacity(most), first: 0, most }
    }

    /// Adds one; its number.
    pub fn push(&mut self, item: T) -> u64 {
        if self.kept.len() == self.most {
            self.kept.pop_front();
            self.first += 1;
        }
        self.kept.push_back(item);
        self.first + self.kept.len() as u64 - 1
    }

    /// The one of that number, unless it is forgotten.
    pub fn get_mut(&mut self, number: u64) -> Option<&mut T> {
        self.kept.get_mut(usize::try_from(number.checked_sub(self.first)?).ok()?)
    }

    /// All that are kept, oldest first.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &T> {
        self.kept.iter()
    }
}

/// One pending period of a request, and the attempt that followed if it was admitted.
#[derive(Clone, Copy, Debug)]
pub(super) struct Attempt {
    pub key: Key,
    pub arrival: u64,
    pub lane: u64,
    pub queued: Stamp,
    /// When it joined that lane.
    pub joined: Stamp,
    /// Its first round with credit, when it began to follow its lane.
    pub judged: Option<Stamp>,
    pub behind: i64,
    /// When the pending period ended.
    pub left: Stamp,
    pub grant: Option<Grant>,
    pub ended: Option<Stamp>,
    pub lost: Option<Loss>,
}

/// What an attempt was given when it was admitted.
#[derive(Clone, Copy, Debug)]
pub(super) struct Grant {
    pub engine: EngineId,
    pub tokens: Tokens,
    pub blocks: Blocks,
}

/// From when on a clock, or one request, was charged a cause.
#[derive(Clone, Copy, Debug)]
pub(super) struct Charge {
    pub whose: Whose,
    pub since: Stamp,
    /// `None`: a single request is charged as its lane again.
    pub cause: Option<Cause>,
    /// The limit's value; 0 when the cause has none.
    pub limit: u64,
    /// The engine whose blocks did not suffice, for `kv_blocks`.
    pub engine: Option<EngineId>,
}

/// Who is charged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Whose {
    /// All newcomers.
    Newcomers,
    /// A lane, by its serial number.
    Lane(u64),
    /// One request that a lookahead passed over.
    Request(Key),
}
