//! Items in vectors: queries, scores and probabilities stay `f32`.

use super::TILE_TOKENS;
use super::item::{Inputs, Item, Kernel};
use super::product::{Element, Matrix};
use super::softmax::{State, exponentials};
use crate::kv::{BLOCK_TOKENS, KvLayout};
use crate::prefetch;

/// Computes with the products of [`Element`].
pub(super) struct Vectors<'a, T>(pub(super) Inputs<'a, T>);

/// Floats that a thread needs for an item of so many queries.
pub(super) fn workspace_len(layout: &KvLayout, queries: usize) -> usize {
    queries * (2 * State::len(layout) + TILE_TOKENS + layout.head_dim)
}

/// A thread's memory for one item.
struct Workspace<'a> {
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
    fn new(layout: &KvLayout, queries: usize, memory: &'a mut [f32]) -> Workspace<'a> {
        let state_len = State::len(layout);
        let (states, rest) = memory.split_at_mut(queries * state_len);
        let (tile, rest) = rest.split_at_mut(queries * state_len);
        let (scores, rest) = rest.split_at_mut(queries * TILE_TOKENS);
        Workspace { state_len, states, tile, scores, queries: &mut rest[..queries * layout.head_dim] }
    }
}

impl<T: Element> Kernel for Vectors<'_, T> {
    type Session = ();

    fn begin(&self) {}

    fn fetch(&self, item: &Item) {
        self.0.fetch(item, 1);
    }

    fn compute<'m>(&self, (): &(), item: &Item, memory: &'m mut [f32]) -> &'m [f32] {
        let plan = self.0.plan;
        let dim = plan.layout.head_dim;
        let mut workspace = Workspace::new(&plan.layout, item.rows * plan.group(), memory);
        for (query, to) in workspace.queries.chunks_exact_mut(dim).enumerate() {
            self.0.query(item, query, to);
        }
        for index in item.tiles.0..item.tiles.1 {
            let first = index == item.tiles.0;
            self.compute_tile(item, index, &mut workspace, first);
            if !first {
                State::merge_each(plan.isa, workspace.state_len, workspace.states, workspace.tile);
            }
        }
        workspace.states
    }
}

impl<T: Element> Vectors<'_, T> {
    /// Computes one tile, into the states themselves if it is the item's first.
    fn compute_tile(&self, item: &Item, index: usize, workspace: &mut Workspace<'_>, first: bool) {
        let plan = self.0.plan;
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
        let head = |block: u32| self.0.entry(item, block).split_at(layout.keys_len());

        for (at, &block) in blocks.iter().enumerate() {
            if let Some(&next) = blocks.get(at + 1).or(later.first()) {
                prefetch::slice(self.0.entry(item, next));
            }
            let queries = Matrix { data: queries, stride: dim, rows: count };
            let scores = &mut scores[at * BLOCK_TOKENS..];
            T::scores(plan.isa, queries, head(block).0, plan.shape.scale, scores, TILE_TOKENS);
        }
        for (query, state) in out.chunks_exact_mut(state_len).enumerate() {
            let scores = &mut scores[query * TILE_TOKENS..][..seen(query)];
            let (max, sum) = exponentials(plan.isa, scores);
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
                T::weigh(plan.isa, weights, tokens(query), head(block).1, State::values(out), state_len);
                query += together;
            }
        }
    }
}
