//! Items in the tiles of AMX: queries and probabilities are rounded to bf16, all sums are `f32`.
//!
//! * `product`: the inner products
//! * `softmax`: their probabilities
//!
//! An item's rows lie in one block of positions, their own. All of them see whole the blocks before it, which are
//! multiplied in tiles. Of their own block each sees another part: what it does not see must not reach it even as
//! NaN, so that values there are weighed one query at a time, in vectors.

mod product;
mod softmax;

use std::array;
use std::ops::Range;

use half::bf16;

use super::TILE_TOKENS;
use super::item::{Inputs, Item, Kernel};
use super::product::{Element, Matrix};
use super::softmax::State;
use crate::amx::{self, ROWS};
use crate::kv::{BLOCK_TOKENS, KvLayout, MAX_HEAD_DIM};
use crate::prefetch;
use crate::rounding::round_to_bf16;
use softmax::TOGETHER;

/// Elements of a head that one product takes.
pub(super) const HEAD_STEP: usize = amx::ROW_BYTES / size_of::<bf16>();

/// Scores of 16 queries in a block.
const TILE: usize = ROWS * BLOCK_TOKENS;
const _: () = assert!(ROWS.is_multiple_of(TOGETHER));

/// Blocks of a KV tile.
const BLOCKS: usize = TILE_TOKENS / BLOCK_TOKENS;

/// How many blocks before it is read a block is fetched.
const BLOCKS_AHEAD: usize = 2;

/// Computes with tiles.
pub(super) struct Tiles<'a>(pub(super) Inputs<'a, bf16>);

/// Floats that a thread needs for an item of so many queries, whole cache lines.
pub(super) fn workspace_len(layout: &KvLayout, queries: usize) -> usize {
    let groups = queries.div_ceil(ROWS);
    (groups + 1) * ROWS * State::len(layout) + groups * query_len(layout) + BLOCKS * (TILE + TILE / 2)
}

/// Floats that 16 queries take once rounded.
fn query_len(layout: &KvLayout) -> usize {
    ROWS * layout.head_dim / 2
}

/// A thread's memory for one item, its queries in groups of 16; rows beyond the last query hold anything.
struct Workspace<'a> {
    /// The merged result of each query.
    states: &'a mut [f32],
    /// The result of the current tile for a group.
    tile: &'a mut [f32],
    /// Of each group `[head_dim / 32][16][32]`.
    queries: &'a mut [bf16],
    /// Scores of a group, `[block][16 queries][16 tokens]`; in the end the probabilities of their own block.
    scores: &'a mut [f32],
    /// Probabilities of a group in the blocks before their own, likewise.
    weights: &'a mut [bf16],
}

impl<'a> Workspace<'a> {
    fn new(layout: &KvLayout, queries: usize, memory: &'a mut [f32]) -> Workspace<'a> {
        let groups = queries.div_ceil(ROWS);
        let group_len = ROWS * State::len(layout);
        let (states, rest) = memory.split_at_mut(groups * group_len);
        let (tile, rest) = rest.split_at_mut(group_len);
        let (queries, rest) = rest.split_at_mut(groups * query_len(layout));
        let (scores, rest) = rest.split_at_mut(BLOCKS * TILE);
        let weights = &mut rest[..BLOCKS * TILE / 2];
        let [queries, weights] = [queries, weights].map(bytemuck::cast_slice_mut);
        Workspace { states, tile, queries, scores, weights }
    }
}

impl Kernel for Tiles<'_> {
    type Session = amx::Tiles;

    fn begin(&self) -> amx::Tiles {
        // SAFETY: the plan's instruction set has tiles, and a thread computes for one attention at a time.
        unsafe { amx::Tiles::configure(&product::shapes(self.0.plan.queries.min(ROWS))) }
    }

    fn fetch(&self, item: &Item) {
        self.0.fetch(item, BLOCKS_AHEAD);
    }

    fn compute<'m>(&self, session: &amx::Tiles, item: &Item, memory: &'m mut [f32]) -> &'m [f32] {
        let plan = self.0.plan;
        let (layout, count) = (&plan.layout, item.rows * plan.group());
        let mut workspace = Workspace::new(layout, count, memory);
        let mut head = [0.0; MAX_HEAD_DIM];
        for query in 0..count {
            let head = &mut head[..layout.head_dim];
            self.0.query(item, query, head);
            let group = &mut workspace.queries[query / ROWS * ROWS * layout.head_dim..];
            for (step, from) in head.as_chunks::<HEAD_STEP>().0.iter().enumerate() {
                let to = &mut group[(step * ROWS + query % ROWS) * HEAD_STEP..][..HEAD_STEP];
                // SAFETY: a machine with tiles has AVX512-BF16.
                unsafe { round_to_bf16(from, to) };
            }
        }
        for index in item.tiles.0..item.tiles.1 {
            for first in (0..count).step_by(ROWS) {
                let queries = first..count.min(first + ROWS);
                self.compute_tile(session, item, index, queries, &mut workspace);
            }
        }
        &workspace.states[..count * State::len(layout)]
    }
}

impl Tiles<'_> {
    /// Computes one tile for a group of queries, and merges it into their states.
    fn compute_tile(
        &self,
        session: &amx::Tiles,
        item: &Item,
        index: usize,
        queries: Range<usize>,
        workspace: &mut Workspace<'_>,
    ) {
        let plan = self.0.plan;
        let (layout, state_len) = (&plan.layout, State::len(&plan.layout));
        let position = plan.sequences[item.sequence].first_position + item.row;
        let (_, blocks) = plan.sequences[item.sequence].blocks().split_at(index * BLOCKS);
        // Blocks of this tile before the queries' own, and whether that one lies in it.
        let before = (position / BLOCK_TOKENS - index * BLOCKS).min(BLOCKS);
        let has_own = before < BLOCKS;
        let Workspace { states, tile, queries: rounded, scores, weights } = workspace;

        let keys = (0..before + usize::from(has_own)).map(|at| {
            // The other groups find it in the cache.
            if let Some(&later) = blocks.get(at + BLOCKS_AHEAD).filter(|_| queries.start == 0) {
                prefetch::slice(self.0.entry(item, later));
            }
            &self.0.entry(item, blocks[at])[..layout.keys_len()]
        });
        let group = queries.start * layout.head_dim..(queries.start + ROWS) * layout.head_dim;
        product::scores(session, &rounded[group], keys, scores);

        // Rows beyond the last query hold anything, and see what that one does.
        let seen = |query: usize| {
            let query = query.min(queries.end - 1);
            if has_own { (position + query / plan.group()) % BLOCK_TOKENS + 1 } else { 0 }
        };
        let states = &mut states[queries.start * state_len..][..ROWS * state_len];
        let first = index == item.tiles.0;
        let out = if first { &mut *states } else { &mut **tile };
        for row in (0..queries.len()).step_by(TOGETHER) {
            let seen = array::from_fn(|of| seen(queries.start + row + of));
            // SAFETY: a machine with tiles has AVX512-BF16.
            let sums = unsafe { softmax::exponentials(scores, weights, row, before, seen, plan.shape.scale) };
            for (state, (max, sum)) in out[row * state_len..].chunks_exact_mut(state_len).zip(sums) {
                State::begin(state, max, sum);
            }
        }
        let values = |at: usize| &self.0.entry(item, blocks[at])[layout.keys_len()..];
        product::weigh(session, weights, (0..before).map(values), out, state_len);
        if has_own {
            for (row, query) in queries.clone().enumerate() {
                let data = &scores[before * TILE + row * BLOCK_TOKENS..][..BLOCK_TOKENS];
                let weights = Matrix { data, stride: BLOCK_TOKENS, rows: 1 };
                let out = State::values(&mut out[row * state_len..][..state_len]);
                bf16::weigh(plan.isa, weights, seen(query), values(before), out, state_len);
            }
        }
        if !first {
            State::merge_each(plan.isa, state_len, &mut states[..queries.len() * state_len], tile);
        }
    }
}
