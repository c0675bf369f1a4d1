//! Causal attention over the paged KV pool, decode and prefill rows in one call.
//!
//! * [`AttentionPlan`]: which work there is this forward, made once and run for every layer
//! * `item`: one piece of work, a few query rows of one KV head against a run of tiles
//! * `vectors`, with `product` and `avx512`: an item in vectors
//! * `tiles`: an item in the tiles of AMX
//! * `softmax`: the state that tiles are merged into
//!
//! Keys are reduced in tiles of [`TILE_TOKENS`] at absolute positions. Within a tile tokens are
//! summed in ascending order; tiles are merged in ascending order. A query's bits therefore depend
//! on its own sequence only: not on other rows, on how prefill was chunked, or on how work was split
//! (the tiling of FlashAttention and the split of Flash-Decoding, Dao et al. 2022 and 2023).

#[cfg(target_arch = "x86_64")]
mod avx512;
mod item;
mod product;
mod softmax;
#[cfg(target_arch = "x86_64")]
mod tiles;
mod vectors;

use crate::disjoint::SharedMut;
use crate::isa::Isa;
#[cfg(target_arch = "x86_64")]
use crate::kv::KvType;
use crate::kv::{BLOCK_TOKENS, KvData, KvLayout, KvPool};
use crate::pool::Pool;
use crate::rope::Rope;
use crate::rows::Rows;
use item::{Inputs, Item, Kernel};
use softmax::State;
#[cfg(target_arch = "x86_64")]
use tiles::Tiles;
use vectors::Vectors;

/// Tokens of a KV tile: eight blocks.
pub const TILE_TOKENS: usize = 8 * BLOCK_TOKENS;

/// Queries (rows times the heads that share a KV head) that vectors work on together.
const QUERIES_PER_ITEM: usize = 32;

/// Below this many multiplications a second thread is not woken.
const INLINE_COST: usize = 64 * 1024;

/// How queries meet the pool.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AttentionShape {
    /// Query heads, a multiple of the pool's KV heads; query head h reads KV head h / (heads / kv_heads).
    pub heads: usize,
    /// Factor on the inner products, usually 1 / sqrt(head dimension).
    pub scale: f32,
}

/// The rows of one sequence in this forward.
#[derive(Clone, Copy, Debug)]
pub struct Sequence<'a> {
    /// First row of the query and output buffers that belongs to it.
    pub first_row: usize,
    /// How many rows, at consecutive positions.
    pub rows: usize,
    /// Position of the first of them. Each row sees positions 0 up to its own, whose keys and values
    /// must be in the pool.
    pub first_position: usize,
    /// Blocks of the sequence, in order of position.
    pub block_table: &'a [u32],
}

impl Sequence<'_> {
    /// The blocks that its rows reach, the last of them perhaps in part.
    fn blocks(&self) -> &[u32] {
        &self.block_table[..(self.first_position + self.rows).div_ceil(BLOCK_TOKENS)]
    }
}

/// The attention work of one forward.
#[derive(Debug)]
pub struct AttentionPlan<'a> {
    layout: KvLayout,
    shape: AttentionShape,
    sequences: &'a [Sequence<'a>],
    items: Vec<Item>,
    splits: Vec<Split>,
    partials: usize,
    /// Of the item that has most.
    queries: usize,
    /// Of all items, as [`Item::cost`] counts.
    cost: usize,
    threads: usize,
    isa: Isa,
}

/// Items that each hold one tile of the same queries, to be merged.
#[derive(Clone, Copy, Debug)]
struct Split {
    item: Item,
    first_partial: usize,
    tiles: usize,
}

impl<'a> AttentionPlan<'a> {
    /// Plans attention for these sequences over a pool of this layout.
    ///
    /// # Panics
    /// If the heads are no multiple of the KV heads, or a block table is too short or names a block
    /// outside the pool.
    pub fn new(
        pool: &Pool,
        layout: &KvLayout,
        shape: AttentionShape,
        sequences: &'a [Sequence<'a>],
    ) -> AttentionPlan<'a> {
        let group = shape.heads / layout.kv_heads;
        assert!(
            group > 0 && group * layout.kv_heads == shape.heads,
            "{} heads over {} KV heads",
            shape.heads,
            layout.kv_heads
        );
        let mut plan = AttentionPlan {
            layout: *layout,
            shape,
            sequences,
            items: Vec::new(),
            splits: Vec::new(),
            partials: 0,
            queries: 0,
            cost: 0,
            threads: pool.threads(),
            isa: pool.isa(),
        };
        for (index, sequence) in sequences.iter().enumerate() {
            let blocks = (sequence.first_position + sequence.rows).div_ceil(BLOCK_TOKENS);
            assert!(
                blocks <= sequence.block_table.len(),
                "a block table of {} for {blocks} blocks",
                sequence.block_table.len()
            );
            for &block in sequence.blocks() {
                assert!((block as usize) < layout.blocks, "block {block} of {}", layout.blocks);
            }
            let mut row = 0;
            while row < sequence.rows {
                let rows = plan.rows_together(sequence.first_position + row).min(sequence.rows - row);
                let tiles = (sequence.first_position + row + rows).div_ceil(TILE_TOKENS);
                plan.items.extend((0..layout.kv_heads).map(|kv_head| Item {
                    sequence: index,
                    row,
                    rows,
                    kv_head,
                    tiles: (0, tiles),
                    partial: None,
                }));
                row += rows;
            }
        }
        plan.queries = plan.items.iter().map(|item| item.rows).max().unwrap_or(0) * group;
        plan.cost = plan.items.iter().map(Item::cost).sum();
        plan.split_long_items();
        plan
    }

    /// Whether queries and probabilities are rounded to bf16 before they are multiplied.
    pub fn rounds(&self) -> bool {
        self.in_tiles()
    }

    /// Whether items are computed in the tiles of AMX: only whole tiles of a head are multiplied there.
    #[cfg(target_arch = "x86_64")]
    fn in_tiles(&self) -> bool {
        let KvLayout { kv_type, head_dim, .. } = self.layout;
        self.isa == Isa::Amx && kv_type == KvType::Bf16 && head_dim.is_multiple_of(tiles::HEAD_STEP)
    }

    #[cfg(not(target_arch = "x86_64"))]
    fn in_tiles(&self) -> bool {
        false
    }

    /// Rows of one item that begins at this position.
    fn rows_together(&self, position: usize) -> usize {
        if self.in_tiles() {
            BLOCK_TOKENS - position % BLOCK_TOKENS
        } else {
            (QUERIES_PER_ITEM / self.group()).max(1)
        }
    }

    /// Replaces items that would keep one thread busy while others idle by one item per tile.
    fn split_long_items(&mut self) {
        let fair = self.cost.div_ceil(4 * self.threads);
        if self.threads > 1 {
            let (partials, splits) = (&mut self.partials, &mut self.splits);
            let mut pieces = Vec::new();
            self.items.retain(|item| {
                let tiles = item.tiles.1;
                if item.cost() <= fair || tiles < 2 {
                    return true;
                }
                splits.push(Split { item: *item, first_partial: *partials, tiles });
                for tile in 0..tiles {
                    pieces.push(Item { tiles: (tile, tile + 1), partial: Some(*partials), ..*item });
                    *partials += item.rows * (self.shape.heads / self.layout.kv_heads);
                }
                false
            });
            self.items.append(&mut pieces);
        }
        self.items.sort_by_key(|item| std::cmp::Reverse(item.cost()));
    }

    /// Attends `q` (`heads · head_dim` wide), rotated by the angles of its positions if there is a rope, to `layer` of
    /// the pool, into `out[rows, heads · head_dim]`. Rows that belong to no sequence are left as they are.
    ///
    /// # Panics
    /// If the pools are not those planned for, a sequence's rows are not in both buffers, or a position is outside the
    /// rope.
    pub fn run(
        &self,
        pool: &Pool,
        kv: &KvPool,
        layer: usize,
        (q, rope): (Rows<'_>, Option<&Rope>),
        out: &mut [f32],
    ) {
        let width = self.shape.heads * self.layout.head_dim;
        assert_eq!(*kv.layout(), self.layout, "the KV pool differs from the planned one");
        let (isa, threads) = (pool.isa(), pool.threads());
        assert!(
            isa == self.isa && threads == self.threads,
            "{threads} threads with {isa} were not planned for"
        );
        assert!(layer < self.layout.layers, "layer {layer} of {}", self.layout.layers);
        assert_eq!(q.width(), width, "query width");
        let mut next = 0;
        for sequence in self.sequences {
            assert!(sequence.first_row >= next, "the rows of sequences overlap or are not ascending");
            next = sequence.first_row + sequence.rows;
        }
        assert!(next <= q.len() && next * width <= out.len(), "{next} rows in shorter buffers");

        match kv.data() {
            KvData::F32(data) => {
                self.attend(pool, &Vectors(Inputs { plan: self, layer, q, rope, data }), out)
            }
            #[cfg(target_arch = "x86_64")]
            KvData::Bf16(data) if self.in_tiles() => {
                self.attend(pool, &Tiles(Inputs { plan: self, layer, q, rope, data }), out);
            }
            KvData::Bf16(data) => {
                self.attend(pool, &Vectors(Inputs { plan: self, layer, q, rope, data }), out)
            }
        }
    }

    /// Floats that each thread needs for an item, whole cache lines.
    fn workspace_len(&self) -> usize {
        #[cfg(target_arch = "x86_64")]
        if self.in_tiles() {
            return tiles::workspace_len(&self.layout, self.queries);
        }
        vectors::workspace_len(&self.layout, self.queries).next_multiple_of(16)
    }

    fn group(&self) -> usize {
        self.shape.heads / self.layout.kv_heads
    }

    fn attend<K: Kernel>(&self, pool: &Pool, kernel: &K, out: &mut [f32]) {
        let (state_len, workspace_len) = (State::len(&self.layout), self.workspace_len());
        let floats = self.partials * state_len + self.threads * workspace_len;
        pool.with_scratch(floats * size_of::<f32>(), |scratch| {
            let scratch: &mut [f32] = bytemuck::cast_slice_mut(scratch);
            let (workspaces, partials) = scratch.split_at_mut(self.threads * workspace_len);
            let (out, partials) = (SharedMut::new(out), SharedMut::new(partials));
            self.compute(pool, kernel, &SharedMut::new(workspaces), &partials, &out);
            self.merge(pool, &partials, &out);
        });
    }

    /// Computes every item, those of splits into their partials.
    fn compute<K: Kernel>(
        &self,
        pool: &Pool,
        kernel: &K,
        workspaces: &SharedMut<'_, f32>,
        partials: &SharedMut<'_, f32>,
        out: &SharedMut<'_, f32>,
    ) {
        let (state_len, workspace_len) = (State::len(&self.layout), self.workspace_len());
        let begin = |thread: usize| (thread, kernel.begin());
        let work = |(thread, session): &mut (usize, K::Session), index: usize| {
            let item = &self.items[index];
            if let Some(next) = self.items.get(index + 1) {
                kernel.fetch(next);
            }
            // SAFETY: a workspace is used by its own thread only.
            let workspace = unsafe { workspaces.slice(*thread * workspace_len, workspace_len) };
            let states = kernel.compute(session, item, workspace);
            if let Some(partial) = item.partial {
                // SAFETY: each split item has its own partials.
                let to = unsafe { partials.slice(partial * state_len, states.len()) };
                to.copy_from_slice(states);
            } else {
                self.finish(item, states, out);
            }
        };
        if self.cost * self.layout.head_dim * self.group() < INLINE_COST {
            let mut state = begin(0);
            (0..self.items.len()).for_each(|index| work(&mut state, index));
        } else {
            pool.share_with(self.items.len(), begin, work);
        }
    }

    /// Merges the partials of each split.
    fn merge(&self, pool: &Pool, partials: &SharedMut<'_, f32>, out: &SharedMut<'_, f32>) {
        let state_len = State::len(&self.layout);
        pool.split(self.splits.len(), state_len * 64, |range| {
            for split in &self.splits[range] {
                let len = split.item.rows * self.group() * state_len;
                // SAFETY: each split's partials are contiguous, its own, and complete.
                let states = unsafe { partials.slice(split.first_partial * state_len, len * split.tiles) };
                let (merged, rest) = states.split_at_mut(len);
                for tile in rest.chunks_exact(len) {
                    State::merge_each(self.isa, state_len, merged, tile);
                }
                self.finish(&split.item, merged, out);
            }
        });
    }

    /// Divides by the sums of the probabilities and writes the output rows of an item.
    fn finish(&self, item: &Item, states: &[f32], out: &SharedMut<'_, f32>) {
        let (group, dim) = (self.group(), self.layout.head_dim);
        let sequence = &self.sequences[item.sequence];
        for (query, state) in states.chunks_exact(State::len(&self.layout)).enumerate() {
            let row = sequence.first_row + item.row + query / group;
            let head = item.kv_head * group + query % group;
            // SAFETY: sequences do not overlap and items of a sequence do not either.
            let to = unsafe { out.slice((row * self.shape.heads + head) * dim, dim) };
            State::finish(state, to);
        }
    }
}
