//! Activations rounded to bf16, for the kernels that multiply them so.
//!
//! Either rows of pairs, or tiles of AMX: for every 16 rows and 32 k one tile, `[rows / 16][k / 32][16][32]`. k
//! is padded with zeros; rows beyond the last hold anything.

use half::bf16;

use super::avx512::round_to_bf16;
use crate::amx;
use crate::disjoint::SharedMut;
use crate::pool::Pool;

/// Elements of k in one tile.
pub(super) const TILE_K: usize = amx::ROW_BYTES / size_of::<bf16>();

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
    let stride = row_bytes(k);
    let out = SharedMut::new(out);
    for_rows(pool, x, k, |index, row| {
        // SAFETY: each row is handed to one thread only.
        let to: &mut [bf16] = bytemuck::cast_slice_mut(unsafe { out.slice(index * stride, stride) });
        let (body, tail) = to.split_at_mut(k);
        // SAFETY: only kernels of AVX512-BF16 take bf16 operands.
        unsafe { round_to_bf16(row, body) };
        tail.fill(bf16::ZERO);
    });
}

/// Rounds rows of `k` activations into tiles.
pub(in crate::linear) fn tile_rows(pool: &Pool, x: &[f32], k: usize, out: &mut [u8]) {
    let group_bytes = amx::ROWS * tiled_row_bytes(k);
    let out = SharedMut::new(out);
    for_rows(pool, x, k, |index, row| {
        let first = index / amx::ROWS * group_bytes + index % amx::ROWS * amx::ROW_BYTES;
        for (tile, from) in row.chunks(TILE_K).enumerate() {
            // SAFETY: each row of a tile is handed to one thread only.
            let to = unsafe { out.slice(first + tile * TILE_BYTES, amx::ROW_BYTES) };
            let (body, tail) = bytemuck::cast_slice_mut(to).split_at_mut(from.len());
            // SAFETY: only machines with AVX512-BF16 have tiles.
            unsafe { round_to_bf16(from, body) };
            tail.fill(bf16::ZERO);
        }
    });
}

fn for_rows(pool: &Pool, x: &[f32], k: usize, job: impl Fn(usize, &[f32]) + Sync) {
    pool.split(x.len() / k, k, |range| range.for_each(|index| job(index, &x[index * k..][..k])));
}
