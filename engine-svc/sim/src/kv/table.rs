//! The blocks of one sequence.

/// Which blocks hold a sequence's positions: block `i` holds positions `i * block_tokens ..`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BlockTable {
    pub(super) ids: Vec<u32>,
    /// Leading blocks that are known to the prefix cache, or that it already had under another id.
    pub(super) published: usize,
}

impl BlockTable {
    /// Block ids, as the backend takes them.
    pub fn ids(&self) -> &[u32] {
        &self.ids
    }

    /// Blocks held.
    pub fn len(&self) -> usize {
        self.ids.len()
    }

    /// Whether no block is held.
    pub fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }
}
