//! Activations rounded to bf16, for the kernels that multiply them so.
//!
//! Either rows of pairs, or tiles of AMX: for every 16 rows and 32 k one tile, `[rows / 16][k / 32][16][32]`. k
//! is padded with zeros; rows beyond the last hold anything.

use std::ops::Range;

use half::bf16;

use crate::activation::silu_mul_vector;
use crate::amx;
use crate::disjoint::SharedMut;
use crate::linear::strips::{Gated, STRIP};
use crate::pool::Pool;
use crate::rounding::{round_to_bf16, round_vector, store_rounded};

/// Elements of k in one tile.
pub(in crate::linear) const TILE_K: usize = amx::ROW_BYTES / size_of::<bf16>();

/// Bytes of one tile.
pub(super) const TILE_BYTES: usize = amx::ROWS * amx::ROW_BYTES;

/// Bytes of a row of `k` activations.
pub(in crate::linear) fn row_bytes(k: usize) -> usize {
    k.next_multiple_of(2) * size_of::<bf16>()
}

/// Bytes that tiles take for each row of `k` activations.
pub(in crate::linear) fn tiled_row_bytes(k: usize) -> usize {
    k.next_multiple_of(TILE_K) * size_of::<bf16>()
}

/// Rounds rows of `k` activations.
pub(in crate::linear) fn round_rows(pool: &Pool, x: &[f32], k: usize, out: &mut [u8]) {
    let out = SharedMut::new(out);
    // SAFETY: each row is handed to one thread only.
    for_rows(pool, x, k, |index, row| unsafe { put_row(&out, k, index, 0, row) });
}

/// Rounds rows of `k` activations into tiles.
pub(in crate::linear) fn tile_rows(pool: &Pool, x: &[f32], k: usize, out: &mut [u8]) {
    let out = SharedMut::new(out);
    // SAFETY: each row of a tile is handed to one thread only.
    for_rows(pool, x, k, |index, row| unsafe { put_tiled(&out, k, index, 0, row) });
}

/// Rounds activations `first..` of row `index`, and the padding after the last.
///
/// # Safety
/// `out` must be rows of `k` activations, the machine have AVX512-BF16, and no one else have these columns.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512bf16")]
pub(in crate::linear) unsafe fn put_row(
    out: &SharedMut<'_, u8>,
    k: usize,
    index: usize,
    first: usize,
    values: &[f32],
) {
    let bytes = values.len().next_multiple_of(2) * size_of::<bf16>();
    // SAFETY: the caller's promise.
    unsafe { round(values, out.slice(index * row_bytes(k) + first * size_of::<bf16>(), bytes)) };
}

/// As [`put_row`], for rows in tiles.
///
/// # Safety
/// As [`put_row`].
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512bf16")]
pub(in crate::linear) unsafe fn put_tiled(
    out: &SharedMut<'_, u8>,
    k: usize,
    index: usize,
    mut first: usize,
    values: &[f32],
) {
    let place = |column: usize| place_in_tiles(k, index, column);
    let (whole, rest) = values.as_chunks::<16>();
    for vector in whole {
        // SAFETY: the caller's promise; half a row of a tile.
        unsafe { round_vector(vector, out.slice(place(first), size_of::<[bf16; 16]>()).as_mut_ptr().cast()) };
        first += vector.len();
    }
    // Only what comes last is padded: what lies beyond in this row of the tile may be another's.
    let is_last = first + rest.len() == k;
    let elements = if is_last { k.next_multiple_of(TILE_K) - first } else { rest.len() };
    if elements > 0 {
        // SAFETY: the caller's promise; never more than the rest of a row of a tile.
        unsafe { round(rest, out.slice(place(first), elements * size_of::<bf16>())) };
    }
}

/// Activates these of the rows, into tiles.
///
/// # Safety
/// The rows must be there, their columns of a row of tiles be no one else's, and the machine have AVX512-BF16.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512bf16")]
pub(in crate::linear) unsafe fn put_gated(gated: &Gated, rows: Range<usize>) {
    for row in rows {
        let at = row / amx::ROWS * gated.group_bytes + row % amx::ROWS * amx::ROW_BYTES;
        // SAFETY: the caller's promise.
        unsafe {
            let [gate, up] = [gated.gate, gated.up].map(|start| &*start.add(row * STRIP).cast());
            store_rounded(silu_mul_vector(gate, up), gated.to.add(at).cast());
        }
    }
}

/// The byte where an activation lies in tiles.
pub(in crate::linear) fn place_in_tiles(k: usize, row: usize, column: usize) -> usize {
    row / amx::ROWS * amx::ROWS * tiled_row_bytes(k)
        + row % amx::ROWS * amx::ROW_BYTES
        + column / TILE_K * TILE_BYTES
        + column % TILE_K * size_of::<bf16>()
}

/// Rounds activations, and fills what is left with zeros.
///
/// # Safety
/// The machine must have AVX512-BF16.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512bf16")]
unsafe fn round(from: &[f32], to: &mut [u8]) {
    let (body, tail) = bytemuck::cast_slice_mut(to).split_at_mut(from.len());
    // SAFETY: the caller's promise.
    unsafe { round_to_bf16(from, body) };
    if !tail.is_empty() {
        tail.fill(bf16::ZERO);
    }
}

fn for_rows(pool: &Pool, x: &[f32], k: usize, job: impl Fn(usize, &[f32]) + Sync) {
    pool.split(x.len() / k, k, |range| range.for_each(|index| job(index, &x[index * k..][..k])));
}
