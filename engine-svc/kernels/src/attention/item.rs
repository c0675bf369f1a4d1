//! One piece of attention work: a few query rows of one KV head against a run of tiles.

use super::{AttentionPlan, TILE_TOKENS};
use crate::kv::BLOCK_TOKENS;
use crate::prefetch;
use crate::rope::Rope;
use crate::rows::Rows;

/// Rows `row..row + rows` of a sequence, all query heads of one KV head, tiles `tiles.0..tiles.1`.
///
/// Its queries are numbered rows first, then heads: a later query never sees fewer tokens.
#[derive(Clone, Copy, Debug)]
pub(super) struct Item {
    pub(super) sequence: usize,
    pub(super) row: usize,
    pub(super) rows: usize,
    pub(super) kv_head: usize,
    pub(super) tiles: (usize, usize),
    /// Where the result of a split item goes, counted in states.
    pub(super) partial: Option<usize>,
}

impl Item {
    /// Multiplications, up to a factor common to all items.
    pub(super) fn cost(&self) -> usize {
        self.rows * (self.tiles.1 - self.tiles.0) * TILE_TOKENS
    }
}

/// What every item of one run reads.
pub(super) struct Inputs<'a, T> {
    pub(super) plan: &'a AttentionPlan<'a>,
    pub(super) layer: usize,
    pub(super) q: Rows<'a>,
    pub(super) rope: Option<&'a Rope>,
    /// The KV pool.
    pub(super) data: &'a [T],
}

impl<T> Inputs<'_, T> {
    /// Writes query `index` of an item.
    pub(super) fn query(&self, item: &Item, index: usize, to: &mut [f32]) {
        let plan = self.plan;
        let (group, dim) = (plan.group(), plan.layout.head_dim);
        let (sequence, row) = (&plan.sequences[item.sequence], item.row + index / group);
        let head = item.kv_head * group + index % group;
        to.copy_from_slice(&self.q.row(sequence.first_row + row)[head * dim..][..dim]);
        if let Some(rope) = self.rope {
            rope.rotate(plan.isa, to, sequence.first_position + row);
        }
    }

    /// Keys and values of a block for an item's head.
    pub(super) fn entry(&self, item: &Item, block: u32) -> &[T] {
        let layout = &self.plan.layout;
        let start = layout.head_start(self.layer, block as usize, item.kv_head);
        &self.data[start..][..layout.head_len()]
    }

    /// Brings an item's queries, and the keys and values of its first blocks, so many, into the cache.
    pub(super) fn fetch(&self, item: &Item, count: usize) {
        let sequence = &self.plan.sequences[item.sequence];
        let width = self.plan.group() * self.plan.layout.head_dim;
        for row in item.row..item.row + item.rows {
            prefetch::slice(&self.q.row(sequence.first_row + row)[item.kv_head * width..][..width]);
        }
        let blocks = sequence.blocks();
        for &block in blocks[item.tiles.0 * TILE_TOKENS / BLOCK_TOKENS..].iter().take(count) {
            prefetch::slice(self.entry(item, block));
        }
    }
}

/// What computes items.
pub(super) trait Kernel: Sync {
    /// What a thread holds while it computes.
    type Session;

    /// Begins a thread's work.
    fn begin(&self) -> Self::Session;

    /// Brings the queries and the first keys and values of an item into the cache.
    fn fetch(&self, item: &Item);

    /// Computes an item in a thread's memory; returns the state of each of its queries.
    fn compute<'m>(&self, session: &Self::Session, item: &Item, memory: &'m mut [f32]) -> &'m [f32];
}
