//! One piece of attention work: a few query rows of one KV head against a run of tiles.

use super::portable::Element;
use super::softmax::State;
use super::{Inputs, TILE_TOKENS};
use crate::kv::{BLOCK_TOKENS, KvLayout};

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

/// A thread's memory for one item.
pub(super) struct Workspace<'a> {
    state_len: usize,
    states: &'a mut [f32],
    tile: &'a mut [f32],
    queries: &'a mut [f32],
    scores: &'a mut [f32],
}

impl<'a> Workspace<'a> {
    /// Floats needed for `queries` queries.
    pub(super) fn len(layout: &KvLayout, queries: usize) -> usize {
        queries * (State::len(layout) + layout.head_dim.next_multiple_of(16) + TILE_TOKENS)
            + State::len(layout)
    }

    pub(super) fn new(layout: &KvLayout, queries: usize, memory: &'a mut [f32]) -> Workspace<'a> {
        let state_len = State::len(layout);
        let (states, rest) = memory.split_at_mut(queries * state_len);
        let (tile, rest) = rest.split_at_mut(state_len);
        let (scores, rest) = rest.split_at_mut(queries * TILE_TOKENS);
        Workspace {
            state_len,
            states,
            tile,
            scores,
            queries: &mut rest[..queries * layout.head_dim],
        }
    }

    /// The results, one state per query, rows outermost.
    pub(super) fn states(&self) -> &[f32] {
        self.states
    }
}

/// Computes an item into the workspace's states.
pub(super) fn compute<T: Element>(
    inputs: &Inputs<'_>,
    data: &[T],
    item: &Item,
    workspace: &mut Workspace<'_>,
) {
    let plan = inputs.plan;
    let isa = inputs.isa;
    let layout = &plan.layout;
    let (group, dim) = (plan.group(), layout.head_dim);
    let sequence = &plan.sequences[item.sequence];
    let Workspace {
        state_len,
        states,
        tile,
        queries,
        scores,
    } = workspace;
    let state_len = *state_len;

    for (query, to) in queries.chunks_exact_mut(dim).enumerate() {
        let head = item.kv_head * group + query % group;
        let row = inputs.q.row(sequence.first_row + item.row + query / group);
        T::operand(&row[head * dim..][..dim], to);
    }
    for index in item.tiles.0..item.tiles.1 {
        let start = index * TILE_TOKENS;
        for (query, q) in queries.chunks_exact(dim).enumerate() {
            let end = sequence.first_position + item.row + query / group + 1;
            let tokens = end.saturating_sub(start).min(TILE_TOKENS);
            if tokens == 0 {
                if item.partial.is_some() {
                    State::set_empty(&mut states[query * state_len..][..state_len]);
                }
                continue;
            }
            let scores = &mut scores[query * TILE_TOKENS..][..TILE_TOKENS];
            let blocks =
                &sequence.block_table[start / BLOCK_TOKENS..][..tokens.div_ceil(BLOCK_TOKENS)];
            let keys = |block: u32| {
                &data[layout.head_start(inputs.layer, block as usize, item.kv_head)..]
                    [..layout.keys_len()]
            };
            let values = |block: u32| {
                let start = layout.head_start(inputs.layer, block as usize, item.kv_head)
                    + layout.keys_len();
                &data[start..][..layout.value_dim() * BLOCK_TOKENS]
            };
            for (scores, block) in scores.chunks_exact_mut(BLOCK_TOKENS).zip(blocks) {
                T::scores(isa, q, keys(*block), plan.shape.scale, scores);
            }
            let (max, sum) = T::probabilities(isa, &mut scores[..tokens]);
            let first = index == item.tiles.0;
            let state = if first {
                &mut states[query * state_len..][..state_len]
            } else {
                &mut tile[..]
            };
            State::set(state, max, sum);
            let out = State::values(state);
            out.fill(0.0);
            for (weights, block) in scores[..tokens].chunks(BLOCK_TOKENS).zip(blocks) {
                T::weigh(isa, weights, values(*block), out);
            }
            if !first {
                State::merge(isa, &mut states[query * state_len..][..state_len], tile);
            }
        }
    }
}
