//! The bf16 kernel for the tiles of AMX, which treat denormals as zero.
//!
//! Three tiles across a panel and one or two down are accumulators; a sixth and a seventh pass the operands
//! by. Any number of rows goes this way, so that none is summed in another order than its neighbours.
//!
//! Contract: see [`Tile`]; a panel is `[K / 2][48][2]` with K padded to whole tiles, the operand as
//! [`operand`](super::operand) says, and the thread holds [`Tiles`](crate::amx::Tiles).

mod meanwhile;
mod strips;

use std::arch::x86_64::*;
use std::mem::MaybeUninit;

use super::avx512::store;
use super::operand::{TILE_BYTES, TILE_K};
use crate::amx::{self, ROW_BYTES, ROWS};
use crate::linear::tile::{self, PANEL, Tile};
pub(super) use strips::bf16_strips;

/// The most rows of a tile of outputs.
pub(super) const MAX_ROWS: usize = 2 * ROWS;
const _: () = assert!(MAX_ROWS <= tile::MAX_ROWS);

/// From one row of weights to the next: a pair for each output.
const WEIGHT_STRIDE: usize = PANEL * 4;

/// bf16 weights and operands, up to 32 rows.
///
/// # Safety
/// As [`Tile`] says, on a machine with AMX, by a thread that holds its tiles.
pub(super) unsafe fn bf16_tile(tile: &Tile) {
    // SAFETY: passed on.
    unsafe {
        match tile.rows {
            ..=ROWS => one_group(tile),
            _ => two_groups(tile),
        }
    }
}

/// # Safety
/// As [`bf16_tile`].
#[target_feature(enable = "avx512f")]
unsafe fn one_group(tile: &Tile) {
    let (mut x, mut w) = (tile.x, tile.w);
    let mut ahead = tile.ahead;
    // SAFETY: the panel and the operand have ⌈k / 32⌉ tiles; the rest is the caller's promise.
    unsafe {
        amx::zero::<0>();
        amx::zero::<1>();
        amx::zero::<2>();
        for _ in 0..tile.k.div_ceil(TILE_K) {
            ahead.fetch();
            amx::load::<6>(x, ROW_BYTES);
            amx::load::<3>(w, WEIGHT_STRIDE);
            amx::multiply::<0, 6, 3>();
            amx::load::<4>(w.add(64), WEIGHT_STRIDE);
            amx::multiply::<1, 6, 4>();
            amx::load::<5>(w.add(128), WEIGHT_STRIDE);
            amx::multiply::<2, 6, 5>();
            x = x.add(TILE_BYTES);
            w = w.add(ROWS * WEIGHT_STRIDE);
        }
        store_group::<0, 1, 2>(tile, 0);
    }
}

/// # Safety
/// As [`bf16_tile`].
#[target_feature(enable = "avx512f")]
unsafe fn two_groups(tile: &Tile) {
    let (mut x, mut w) = (tile.x, tile.w);
    let group_bytes = ROWS * tile.x_stride;
    let mut ahead = tile.ahead;
    // SAFETY: as above.
    unsafe {
        amx::zero::<0>();
        amx::zero::<1>();
        amx::zero::<2>();
        amx::zero::<3>();
        amx::zero::<4>();
        amx::zero::<5>();
        for _ in 0..tile.k.div_ceil(TILE_K) {
            ahead.fetch();
            amx::load::<6>(x, ROW_BYTES);
            amx::load::<7>(w, WEIGHT_STRIDE);
            amx::multiply::<0, 6, 7>();
            amx::load::<7>(w.add(64), WEIGHT_STRIDE);
            amx::multiply::<1, 6, 7>();
            amx::load::<7>(w.add(128), WEIGHT_STRIDE);
            amx::multiply::<2, 6, 7>();
            amx::load::<6>(x.add(group_bytes), ROW_BYTES);
            amx::multiply::<5, 6, 7>();
            amx::load::<7>(w.add(64), WEIGHT_STRIDE);
            amx::multiply::<4, 6, 7>();
            amx::load::<7>(w, WEIGHT_STRIDE);
            amx::multiply::<3, 6, 7>();
            x = x.add(TILE_BYTES);
            w = w.add(ROWS * WEIGHT_STRIDE);
        }
        store_group::<0, 1, 2>(tile, 0);
        store_group::<3, 4, 5>(tile, ROWS);
    }
}

/// Writes the outputs of three accumulators, whose first row is `first` of the tile's.
///
/// # Safety
/// As [`bf16_tile`].
#[target_feature(enable = "avx512f")]
unsafe fn store_group<const A: u8, const B: u8, const C: u8>(tile: &Tile, first: usize) {
    let is_whole = tile.columns == PANEL && tile.rows - first >= ROWS;
    let y = tile.y.wrapping_add(first * tile.y_stride);
    // A tile whose rows straddle cache lines is slow to store.
    let stride = tile.y_stride * size_of::<f32>();
    let is_aligned = y.addr().is_multiple_of(ROW_BYTES) && stride.is_multiple_of(ROW_BYTES);
    // SAFETY: whole tiles lie in the outputs, three of them fill the sums; the rest is passed on.
    unsafe {
        if is_whole && is_aligned && tile.bias.is_null() && !tile.add {
            store_tiles::<A, B, C>(y.cast(), stride);
            return;
        }
        let mut sums = MaybeUninit::<Sums>::uninit();
        store_tiles::<A, B, C>(sums.as_mut_ptr().cast(), PANEL * size_of::<f32>());
        let sums = sums.assume_init_ref();
        if is_whole && tile.bias.is_null() && tile.add {
            add_whole(sums, y, tile.y_stride);
            return;
        }
        for (row, sums) in sums.0.as_chunks::<PANEL>().0.iter().take(tile.rows - first).enumerate() {
            for (vector, sums) in sums.as_chunks::<16>().0.iter().enumerate() {
                store(tile, first + row, vector, _mm512_load_ps(sums.as_ptr()));
            }
        }
    }
}

/// What three accumulators hold.
#[repr(align(64))]
struct Sums([f32; ROWS * PANEL]);

/// # Safety
/// 16 rows of 48 outputs, `stride` bytes apart, must be there to write.
#[inline(always)]
unsafe fn store_tiles<const A: u8, const B: u8, const C: u8>(to: *mut u8, stride: usize) {
    // SAFETY: the caller's promise.
    unsafe {
        amx::store::<A>(to, stride);
        amx::store::<B>(to.add(ROW_BYTES), stride);
        amx::store::<C>(to.add(2 * ROW_BYTES), stride);
    }
}

/// Adds the sums to 16 rows of 48 outputs.
///
/// # Safety
/// Those must be there, `stride` elements apart.
#[target_feature(enable = "avx512f")]
unsafe fn add_whole(sums: &Sums, mut y: *mut f32, stride: usize) {
    for sums in sums.0.as_chunks::<PANEL>().0 {
        for (vector, sums) in sums.as_chunks::<16>().0.iter().enumerate() {
            // SAFETY: the caller's promise; a chunk is a vector.
            unsafe {
                let to = y.wrapping_add(vector * 16);
                _mm512_storeu_ps(to, _mm512_add_ps(_mm512_loadu_ps(to), _mm512_load_ps(sums.as_ptr())));
            }
        }
        y = y.wrapping_add(stride);
    }
}
