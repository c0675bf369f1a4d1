//! Kernels for AVX-512: `f32` by FMA, bf16 by widening to `f32`, and bf16 by the dot-product
//! instruction of AVX512-BF16 (which treats denormals as zero).
//!
//! A tile of up to eight rows and 48 columns is held in 24 accumulators while the panel streams by.
//!
//! Contract: see [`Tile`]; a panel is `[⌈K / group⌉][48][group]` and aligned to a cache line.
#![allow(clippy::needless_range_loop, reason = "an index names a row of several arrays")]

use std::arch::x86_64::*;

use crate::linear::tile::{Tile, by_rows};

/// Vectors across a panel.
const VECTORS: usize = 3;

/// `f32` weights and operands, up to 8 rows.
///
/// # Safety
/// As [`Tile`] says, on a machine with AVX-512 F.
pub(super) unsafe fn f32_tile(tile: &Tile) {
    by_rows!(tile, f32_rows, 1, 2, 3, 4, 5, 6, 7, 8);
}

/// bf16 weights and operands by the dot-product instruction, up to 8 rows.
///
/// # Safety
/// As [`Tile`] says, on a machine with AVX512-BF16.
pub(super) unsafe fn bf16_dot_tile(tile: &Tile) {
    by_rows!(tile, bf16_dot_rows, 1, 2, 3, 4, 5, 6, 7, 8);
}

/// bf16 weights widened to `f32`, `f32` operands, up to 8 rows.
///
/// # Safety
/// As [`Tile`] says, on a machine with AVX-512 F.
pub(super) unsafe fn bf16_widen_tile(tile: &Tile) {
    by_rows!(tile, bf16_widen_rows, 1, 2, 3, 4, 5, 6, 7, 8);
}

#[target_feature(enable = "avx512f")]
unsafe fn f32_rows<const ROWS: usize>(tile: &Tile) {
    let mut sums = [[_mm512_setzero_ps(); VECTORS]; ROWS];
    let mut w = tile.w.cast::<f32>();
    let mut x = tile.x;
    let mut ahead = tile.ahead;
    for _ in 0..tile.k {
        // SAFETY: the panel has `k` groups of 48, each operand row `k` elements.
        unsafe {
            let mut weights = [_mm512_setzero_ps(); VECTORS];
            for (j, weight) in weights.iter_mut().enumerate() {
                *weight = _mm512_load_ps(w.add(j * 16));
            }
            ahead.fetch();
            multiply::<ROWS>(&mut sums, x, tile.x_stride, weights);
            w = w.add(VECTORS * 16);
            x = x.add(4);
        }
    }
    for row in 0..ROWS {
        for vector in 0..VECTORS {
            // SAFETY: passed on.
            unsafe { store(tile, row, vector, sums[row][vector]) };
        }
    }
}

#[target_feature(enable = "avx512f,avx512bf16")]
unsafe fn bf16_dot_rows<const ROWS: usize>(tile: &Tile) {
    let mut sums = [[_mm512_setzero_ps(); VECTORS]; ROWS];
    let mut w = tile.w;
    let mut x = tile.x;
    let mut ahead = tile.ahead;
    for _ in 0..tile.k.div_ceil(2) {
        // SAFETY: the panel has ⌈k / 2⌉ groups of 48 pairs, each operand row as many pairs.
        unsafe {
            let mut weights = [pairs(_mm512_setzero_si512()); VECTORS];
            for (j, weight) in weights.iter_mut().enumerate() {
                *weight = pairs(_mm512_load_si512(w.add(j * 64).cast()));
            }
            ahead.fetch();
            for (row, sums) in sums.iter_mut().enumerate() {
                let x = x.add(row * tile.x_stride).cast::<i32>().read_unaligned();
                let x = pairs(_mm512_set1_epi32(x));
                for (sum, weight) in sums.iter_mut().zip(weights) {
                    *sum = _mm512_dpbf16_ps(*sum, x, weight);
                }
            }
            w = w.add(VECTORS * 64);
            x = x.add(4);
        }
    }
    for row in 0..ROWS {
        for vector in 0..VECTORS {
            // SAFETY: passed on.
            unsafe { store(tile, row, vector, sums[row][vector]) };
        }
    }
}

#[target_feature(enable = "avx512f")]
unsafe fn bf16_widen_rows<const ROWS: usize>(tile: &Tile) {
    let mut sums = [[_mm512_setzero_ps(); VECTORS]; ROWS];
    let high_half = _mm512_set1_epi32(0xffff_0000_u32.cast_signed());
    let mut w = tile.w;
    let mut x = tile.x;
    let mut ahead = tile.ahead;
    for pair in 0..tile.k.div_ceil(2) {
        // SAFETY: the panel has ⌈k / 2⌉ groups of 48 pairs, each operand row k elements.
        unsafe {
            let mut high = [_mm512_setzero_ps(); VECTORS];
            let mut low = high;
            for j in 0..VECTORS {
                let both = _mm512_load_si512(w.add(j * 64).cast());
                low[j] = _mm512_castsi512_ps(_mm512_slli_epi32::<16>(both));
                high[j] = _mm512_castsi512_ps(_mm512_and_si512(both, high_half));
            }
            ahead.fetch();
            multiply::<ROWS>(&mut sums, x, tile.x_stride, low);
            if 2 * pair + 1 < tile.k {
                multiply::<ROWS>(&mut sums, x.add(4), tile.x_stride, high);
            }
            w = w.add(VECTORS * 64);
            x = x.add(8);
        }
    }
    for row in 0..ROWS {
        for vector in 0..VECTORS {
            // SAFETY: passed on.
            unsafe { store(tile, row, vector, sums[row][vector]) };
        }
    }
}

/// Adds the products of one operand of each row with a row of weights.
///
/// # Safety
/// `x` and the addresses `stride` bytes on must hold an `f32` for each row.
#[inline]
#[target_feature(enable = "avx512f")]
unsafe fn multiply<const ROWS: usize>(
    sums: &mut [[__m512; VECTORS]; ROWS],
    x: *const u8,
    stride: usize,
    weights: [__m512; VECTORS],
) {
    for row in 0..ROWS {
        // SAFETY: the caller's promise.
        let x = _mm512_set1_ps(unsafe { x.add(row * stride).cast::<f32>().read() });
        for j in 0..VECTORS {
            sums[row][j] = _mm512_fmadd_ps(x, weights[j], sums[row][j]);
        }
    }
}

#[inline]
#[target_feature(enable = "avx512f")]
fn pairs(vector: __m512i) -> __m512bh {
    // SAFETY: both are 64 bytes of plain data.
    unsafe { std::mem::transmute::<__m512i, __m512bh>(vector) }
}

/// Adds the bias and writes 16 outputs, or as many as the tile has there.
///
/// # Safety
/// As [`Tile`] says; `row` and `vector` lie in it.
#[inline]
#[target_feature(enable = "avx512f")]
pub(in crate::linear) unsafe fn store(tile: &Tile, row: usize, vector: usize, sum: __m512) {
    let column = vector * 16;
    let columns = tile.columns.saturating_sub(column).min(16);
    let mask = (0xffff_u32 >> (16 - columns)) as u16;
    // SAFETY: a bias has 48 elements; the mask keeps to the tile's columns.
    unsafe {
        let mut value = sum;
        if !tile.bias.is_null() {
            value = _mm512_add_ps(value, _mm512_loadu_ps(tile.bias.add(column)));
        }
        let y = tile.y.add(row * tile.y_stride).wrapping_add(column);
        if tile.add {
            value = _mm512_add_ps(_mm512_maskz_loadu_ps(mask, y), value);
        }
        _mm512_mask_storeu_ps(y, mask, value);
    }
}
