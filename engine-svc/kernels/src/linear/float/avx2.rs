//! Kernels for AVX2 and FMA: strips of 16 columns, up to four rows in eight accumulators.
//!
//! Contract: see [`Tile`]; a panel is `[⌈K / group⌉][48][group]` and aligned to a cache line.

use std::arch::x86_64::*;

use crate::linear::tile::{PANEL, Tile, by_rows};

/// Columns of a strip: two vectors.
pub(in crate::linear) const STRIP: usize = 16;

/// `f32` weights and operands, up to 4 rows.
///
/// # Safety
/// As [`Tile`] says, on a machine with AVX2 and FMA.
pub(super) unsafe fn f32_tile(tile: &Tile) {
    by_rows!(tile, f32_rows, 1, 2, 3, 4);
}

/// bf16 weights widened to `f32`, `f32` operands, up to 4 rows.
///
/// # Safety
/// As [`Tile`] says, on a machine with AVX2 and FMA.
pub(super) unsafe fn bf16_tile(tile: &Tile) {
    by_rows!(tile, bf16_rows, 1, 2, 3, 4);
}

#[target_feature(enable = "avx2,fma")]
unsafe fn f32_rows<const ROWS: usize>(tile: &Tile) {
    for strip in (0..tile.columns).step_by(STRIP) {
        let mut sums = [[_mm256_setzero_ps(); 2]; ROWS];
        for k in 0..tile.k {
            // SAFETY: the panel has `k` groups of 48, each operand row `k` elements.
            unsafe {
                let w = tile.w.cast::<f32>().add(k * PANEL + strip);
                let weights = [_mm256_load_ps(w), _mm256_load_ps(w.add(8))];
                for (row, sums) in sums.iter_mut().enumerate() {
                    let x = tile.x.add(row * tile.x_stride).cast::<f32>().add(k);
                    let x = _mm256_broadcast_ss(&*x);
                    sums[0] = _mm256_fmadd_ps(x, weights[0], sums[0]);
                    sums[1] = _mm256_fmadd_ps(x, weights[1], sums[1]);
                }
            }
        }
        for (row, sums) in sums.into_iter().enumerate() {
            // SAFETY: passed on.
            unsafe { store(tile, row, strip, sums) };
        }
    }
}

#[target_feature(enable = "avx2,fma")]
unsafe fn bf16_rows<const ROWS: usize>(tile: &Tile) {
    let high_half = _mm256_set1_epi32(0xffff_0000_u32.cast_signed());
    for strip in (0..tile.columns).step_by(STRIP) {
        let mut sums = [[_mm256_setzero_ps(); 2]; ROWS];
        for pair in 0..tile.k.div_ceil(2) {
            // SAFETY: the panel has ⌈k / 2⌉ groups of 48 pairs, each operand row k elements.
            unsafe {
                let w = tile.w.cast::<u32>().add(pair * PANEL + strip);
                let weights = [_mm256_load_si256(w.cast()), _mm256_load_si256(w.add(8).cast())];
                let mut low = [_mm256_setzero_ps(); 2];
                let mut high = low;
                for (j, pair) in weights.into_iter().enumerate() {
                    low[j] = _mm256_castsi256_ps(_mm256_slli_epi32::<16>(pair));
                    high[j] = _mm256_castsi256_ps(_mm256_and_si256(pair, high_half));
                }
                for (row, sums) in sums.iter_mut().enumerate() {
                    let x = tile.x.add(row * tile.x_stride).cast::<f32>().add(2 * pair);
                    let first = _mm256_set1_ps(x.read());
                    sums[0] = _mm256_fmadd_ps(first, low[0], sums[0]);
                    sums[1] = _mm256_fmadd_ps(first, low[1], sums[1]);
                    if 2 * pair + 1 < tile.k {
                        let second = _mm256_set1_ps(x.add(1).read());
                        sums[0] = _mm256_fmadd_ps(second, high[0], sums[0]);
                        sums[1] = _mm256_fmadd_ps(second, high[1], sums[1]);
                    }
                }
            }
        }
        for (row, sums) in sums.into_iter().enumerate() {
            // SAFETY: passed on.
            unsafe { store(tile, row, strip, sums) };
        }
    }
}

/// Adds the bias and writes a strip of one row of the outputs.
///
/// # Safety
/// As [`Tile`] says; `row` and `strip` lie in it.
#[inline]
#[target_feature(enable = "avx2")]
pub(in crate::linear) unsafe fn store(tile: &Tile, row: usize, strip: usize, sums: [__m256; 2]) {
    // SAFETY: two vectors are 16 floats.
    let sums: [f32; STRIP] = unsafe { std::mem::transmute(sums) };
    for (column, sum) in (strip..tile.columns).zip(sums) {
        // SAFETY: a bias has 48 elements, and the tile owns its columns.
        unsafe {
            let bias = if tile.bias.is_null() { 0.0 } else { tile.bias.add(column).read() };
            let y = tile.y.add(row * tile.y_stride + column);
            let value = sum + bias;
            y.write(if tile.add { y.read() + value } else { value });
        }
    }
}
