//! The inner products of attention in tiles: keys `[head_dim / 2][16][2]` and values `[8][dim][2]` of a block are
//! operands as they lie in the pool.
//!
//! Contract of the `unsafe` here: whoever calls holds tiles of [`shapes`], and each function checks that its slices
//! hold what tiles read and write.

use half::bf16;

use super::{HEAD_STEP, TILE};
use crate::amx::{self, ROW_BYTES, ROWS, Shapes, Tiles};
use crate::attention::softmax::HEADER;
use crate::kv::BLOCK_TOKENS;

/// Five of so many queries, at most 16, then keys; the probabilities and values of one block. Products take less time
/// the fewer queries there are.
pub(super) fn shapes(queries: usize) -> Shapes {
    Shapes::new([
        (queries, ROW_BYTES),
        (queries, ROW_BYTES),
        (queries, ROW_BYTES),
        (queries, ROW_BYTES),
        (queries, ROW_BYTES),
        (ROWS, ROW_BYTES),
        (queries, WEIGHT_BYTES),
        (BLOCK_TOKENS / 2, ROW_BYTES),
    ])
}

/// Elements of 16 queries, or of a block's keys, that one product takes.
const OPERAND: usize = ROWS * HEAD_STEP;

/// Bytes of one query's probabilities in a block.
const WEIGHT_BYTES: usize = BLOCK_TOKENS * size_of::<bf16>();

/// The inner products of up to 16 queries with the keys of each block, `[block][16 queries][16 tokens]`.
pub(super) fn scores<'a>(
    _tiles: &Tiles,
    queries: &[bf16],
    keys: impl Iterator<Item = &'a [bf16]>,
    scores: &mut [f32],
) {
    let queries = queries.as_chunks::<OPERAND>().0;
    // SAFETY: an operand is a whole tile, and so are the scores of a block.
    unsafe {
        // The first of them stay where they are for all blocks.
        for (step, queries) in queries.iter().enumerate() {
            let from = queries.as_ptr().cast();
            match step {
                0 => amx::load::<1>(from, ROW_BYTES),
                1 => amx::load::<2>(from, ROW_BYTES),
                2 => amx::load::<3>(from, ROW_BYTES),
                _ => break,
            }
        }
        for (keys, scores) in keys.zip(scores.as_chunks_mut::<TILE>().0) {
            amx::zero::<0>();
            for (step, (keys, queries)) in keys.as_chunks::<OPERAND>().0.iter().zip(queries).enumerate() {
                amx::load::<5>(keys.as_ptr().cast(), ROW_BYTES);
                match step {
                    0 => amx::multiply::<0, 1, 5>(),
                    1 => amx::multiply::<0, 2, 5>(),
                    2 => amx::multiply::<0, 3, 5>(),
                    _ => {
                        amx::load::<4>(queries.as_ptr().cast(), ROW_BYTES);
                        amx::multiply::<0, 4, 5>();
                    }
                }
            }
            amx::store::<0>(scores.as_mut_ptr().cast(), ROW_BYTES);
        }
    }
}

/// Overwrites the values of up to 16 states, `stride` floats apart, with the sums of those of each block, as
/// `weights[block][16 queries][16 tokens]` weigh them.
pub(super) fn weigh<'a>(
    _tiles: &Tiles,
    weights: &[bf16],
    values: impl Iterator<Item = &'a [bf16]> + Clone,
    states: &mut [f32],
    stride: usize,
) {
    let dim = stride - HEADER;
    assert!(states.len() >= ROWS * stride && dim.is_multiple_of(BLOCK_TOKENS));
    let (weights, to) = (weights.as_chunks::<TILE>().0, states[HEADER..].as_mut_ptr());
    let mut first = 0;
    while first < dim {
        let wide = dim - first >= 4 * BLOCK_TOKENS;
        // SAFETY: 16 or 64 columns of weights, values and states are there.
        unsafe {
            amx::zero::<0>();
            if wide {
                amx::zero::<1>();
                amx::zero::<2>();
                amx::zero::<3>();
            }
            for (weights, values) in weights.iter().zip(values.clone()) {
                assert!(values.len() == BLOCK_TOKENS * dim);
                let from = values.as_ptr().cast::<u8>().add(first * 4);
                amx::load::<6>(weights.as_ptr().cast(), WEIGHT_BYTES);
                amx::load::<7>(from, dim * 4);
                amx::multiply::<0, 6, 7>();
                if wide {
                    amx::load::<7>(from.add(ROW_BYTES), dim * 4);
                    amx::multiply::<1, 6, 7>();
                    amx::load::<7>(from.add(2 * ROW_BYTES), dim * 4);
                    amx::multiply::<2, 6, 7>();
                    amx::load::<7>(from.add(3 * ROW_BYTES), dim * 4);
                    amx::multiply::<3, 6, 7>();
                }
            }
            let to = to.add(first).cast::<u8>();
            amx::store::<0>(to, stride * 4);
            if wide {
                amx::store::<1>(to.add(ROW_BYTES), stride * 4);
                amx::store::<2>(to.add(2 * ROW_BYTES), stride * 4);
                amx::store::<3>(to.add(3 * ROW_BYTES), stride * 4);
            }
        }
        first += if wide { 4 * BLOCK_TOKENS } else { BLOCK_TOKENS };
    }
}
