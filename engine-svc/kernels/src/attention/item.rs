//! One piece of attention work: a few query rows of one KV head against a run of tiles.

use super::product::{Element, Matrix};
use super::softmax::{State, exponentials};
use super::{Inputs, TILE_TOKENS};
use crate::kv::{BLOCK_TOKENS, KvLayout};
use crate::prefetch;

/// Rows `row..row + rows` of a sequence, all query heads of one KV head, tiles `tiles.0..tiles.1`.
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

/// A thread's memory for one item. Queries are numbered rows first, then heads: a later query never
/// sees fewer tokens.
pub(super) struct Workspace<'a> {
    state_len: usize,
    /// The merged result of each query.
    states: &'a mut [f32],
    /// The result of the current tile.
    tile: &'a mut [f32],
    /// Scores, then probabilities: [`TILE_TOKENS`] for each query.
    scores: &'a mut [f32],
    queries: &'a mut [f32],
}

impl<'a> Workspace<'a> {
    /// Floats needed for `queries` queries, rounded up to whole cache lines.
    pub(super) fn len(layout: &KvLayout, queries: usize) -> usize {
        (queries * (2 * State::len(layout) + TILE_TOKENS + layout.head_dim)).next_multiple_of(16)
    }

    pub(super) fn new(layout: &KvLayout, queries: usize, memory: &'a mut [f32]) -> Workspace<'a> {
        let state_len = State::len(layout);
        let (states, rest) = memory.split_at_mut(queries * state_len);
        let (tile, rest) = rest.split_at_mut(queries * state_len);
        let (scores, rest) = rest.split_at_mut(queries * TILE_TOKENS);
        Workspace { state_len, states, tile, scores, queries: &mut rest[..queries * layout.head_dim] }
    }

    /// The results, one state per query.
    pub(super) fn states(&self) -> &[f32] {
        self.states
    }
}

/// Brings the first keys and values of an item into the cache.
pub(super) fn fetch_first_block<T: Element>(inputs: &Inputs<'_>, data: &[T], item: &Item) {
    let layout = &inputs.plan.layout;
    let block = inputs.plan.sequences[item.sequence].blocks()[item.tiles.0 * TILE_TOKENS / BLOCK_TOKENS];
    let start = layout.head_start(inputs.layer, block as usize, item.kv_head);
    prefetch::slice(&data[start..][..layout.head_len()]);
}

/// Computes an item into the workspace's states.
pub(super) fn compute<T: Element>(
    inputs: &Inputs<'_>,
    data: &[T],
    item: &Item,
    workspace: &mut Workspace<'_>,
) {
    let plan = inputs.plan;
    let (group, dim) = (plan.group(), plan.layout.head_dim);
    let first_row = plan.sequences[item.sequence].first_row + item.row;
    for (query, to) in workspace.queries.chunks_exact_mut(dim).enumerate() {
        let head = item.kv_head * group + query % group;
        to.copy_from_slice(&inputs.q.row(first_row + query / group)[head * dim..][..dim]);
    }
    for index in item.tiles.0..item.tiles.1 {
        let first = index == item.tiles.0;
        compute_tile(inputs, data, item, index, workspace, first);
        if !first {
            let states = workspace.states.chunks_exact_mut(workspace.state_len);
            for (into, from) in states.zip(workspace.tile.chunks_exact(workspace.state_len)) {
                State::merge(inputs.isa, into, from);
            }
        }
    }
}

/// Computes one tile, into the states themselves if it is the item's first.
fn compute_tile<T: Element>(
    inputs: &Inputs<'_>,
    data: &[T],
    item: &Item,
    index: usize,
    workspace: &mut Workspace<'_>,
    first: bool,
) {
    let (plan, isa) = (inputs.plan, inputs.isa);
    let (layout, group) = (&plan.layout, plan.group());
    let sequence = &plan.sequences[item.sequence];
    let Workspace { state_len, states, tile, scores, queries } = workspace;
    let (state_len, dim) = (*state_len, layout.head_dim);
    let out = if first { states } else { tile };
    let count = item.rows * group;
    let start = index * TILE_TOKENS;
    // Tokens of this tile that a query sees.
    let seen = |query: usize| {
        let end = sequence.first_position + item.row + query / group + 1;
        end.saturating_sub(start).min(TILE_TOKENS)
    };
    let blocks = &sequence.blocks()[start / BLOCK_TOKENS..];
    let (blocks, later) = blocks.split_at(seen(count - 1).div_ceil(BLOCK_TOKENS));
    let entry = |block: u32| {
        let start = layout.head_start(inputs.layer, block as usize, item.kv_head);
        &data[start..][..layout.head_len()]
    };
    let head = |block: u32| entry(block).split_at(layout.keys_len());

    for (at, &block) in blocks.iter().enumerate() {
        if let Some(&next) = blocks.get(at + 1).or(later.first()) {
            prefetch::slice(entry(next));
        }
        let queries = Matrix { data: queries, stride: dim, rows: count };
        let scores = &mut scores[at * BLOCK_TOKENS..];
        T::scores(isa, queries, head(block).0, plan.shape.scale, scores, TILE_TOKENS);
    }
    for (query, state) in out.chunks_exact_mut(state_len).enumerate() {
        let scores = &mut scores[query * TILE_TOKENS..][..seen(query)];
        let (max, sum) = exponentials(isa, scores);
        State::reset(state, max, sum);
    }
    for (at, &block) in blocks.iter().enumerate() {
        let tokens = |query: usize| seen(query).saturating_sub(at * BLOCK_TOKENS).min(BLOCK_TOKENS);
        // Queries that see the whole block go together, those that see a part one by one.
        let mut query = 0;
        while query < count {
            let together = if tokens(query) == BLOCK_TOKENS { count - query } else { 1 };
            let weights = Matrix {
                data: &scores[query * TILE_TOKENS + at * BLOCK_TOKENS..],
                stride: TILE_TOKENS,
                rows: together,
            };
            let out = &mut out[query * state_len..];
            T::weigh(isa, weights, tokens(query), head(block).1, State::values(out), state_len);
            query += together;
        }
    }
}
