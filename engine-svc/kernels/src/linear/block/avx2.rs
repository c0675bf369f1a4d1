//! Block kernels for AVX2: nibbles times signed activations by `maddubs`, which cannot overflow; bytes
//! are multiplied as two nibbles.
//!
//! Contract: see [`Tile`] and the layouts in the parent module and [`operand`](super::operand).
#![allow(clippy::needless_range_loop, reason = "an index names a row of several arrays")]

use std::arch::x86_64::*;

use super::operand::{MINUS_8_SUMS, MINUS_128_SUMS, RECORD, SCALE, SCALED_SUM};
use super::{BLOCK, Encoding, GROUP_BYTES, NUMBERS_BYTES, Q4_0, Q4_1, Q8_0};
use crate::linear::float::avx2::{STRIP, store};
use crate::linear::tile::Tile;

tile_kernels!("AVX2, FMA and F16C");

#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn rows<const ROWS: usize, const FORMAT: u8>(tile: &Tile) {
    let encoding = const { Encoding::numbered(FORMAT) };
    let blocks = tile.k.div_ceil(BLOCK);
    for first in (0..tile.columns).step_by(STRIP) {
        let mut sums = [[_mm256_setzero_ps(); 2]; ROWS];
        for block in 0..blocks {
            let numbers = encoding.numbers_start(blocks) + block * encoding.numbers() * NUMBERS_BYTES;
            for half in 0..2 {
                // SAFETY: each strip has `blocks` blocks, each operand row as many records.
                unsafe {
                    let strip = tile.w.add(first / STRIP * encoding.strip_bytes(blocks));
                    let weights = strip.add(block * encoding.groups() * GROUP_BYTES + half * 32);
                    let numbers = strip.add(numbers + half * 16);
                    let x = tile.x.add(block * RECORD);
                    add_block::<ROWS, FORMAT>(&mut sums, half, weights, numbers, x, tile.x_stride);
                }
            }
        }
        for row in 0..ROWS {
            // SAFETY: passed on.
            unsafe { store(tile, row, first, sums[row]) };
        }
    }
}

/// Adds one block's products with eight columns, half a strip, to the sums.
///
/// # Safety
/// `weights` and `numbers` must point to that half of the block's weights and scales, `x` to a record
/// of each row, `stride` apart.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn add_block<const ROWS: usize, const FORMAT: u8>(
    sums: &mut [[__m256; 2]; ROWS],
    half: usize,
    weights: *const u8,
    numbers: *const u8,
    x: *const u8,
    stride: usize,
) {
    let nibble = _mm256_set1_epi8(15);
    let mut dots = [_mm256_setzero_si256(); ROWS];
    // SAFETY: the caller's promise covers every address below.
    unsafe {
        for group in 0..const { Encoding::numbered(FORMAT).groups() } {
            let weights = _mm256_load_si256(weights.add(group * GROUP_BYTES).cast());
            let low = _mm256_and_si256(weights, nibble);
            let high = _mm256_and_si256(_mm256_srli_epi16::<4>(weights), nibble);
            for row in 0..ROWS {
                let x = x.add(row * stride + group * 4);
                if FORMAT == Q8_0 {
                    let x = int(x);
                    let high = _mm256_slli_epi32::<4>(dot(high, x));
                    dots[row] = _mm256_add_epi32(dots[row], _mm256_add_epi32(dot(low, x), high));
                } else {
                    let both = _mm256_add_epi32(dot(low, int(x)), dot(high, int(x.add(16))));
                    dots[row] = _mm256_add_epi32(dots[row], both);
                }
            }
        }
        let scale = _mm256_cvtph_ps(_mm_load_si128(numbers.cast()));
        let minimum = match FORMAT {
            Q4_1 => _mm256_cvtph_ps(_mm_load_si128(numbers.add(NUMBERS_BYTES).cast())),
            _ => _mm256_setzero_ps(),
        };
        for row in 0..ROWS {
            let x = x.add(row * stride);
            let offset = match FORMAT {
                Q8_0 => int(x.add(MINUS_128_SUMS)),
                Q4_0 => int(x.add(MINUS_8_SUMS)),
                _ => _mm256_setzero_si256(),
            };
            let dot = _mm256_cvtepi32_ps(_mm256_add_epi32(dots[row], offset));
            let scale = _mm256_mul_ps(scale, float(x.add(SCALE)));
            let mut sum = _mm256_fmadd_ps(dot, scale, sums[row][half]);
            if FORMAT == Q4_1 {
                sum = _mm256_fmadd_ps(minimum, float(x.add(SCALED_SUM)), sum);
            }
            sums[row][half] = sum;
        }
    }
}

/// Products of four nibbles and four signed bytes per lane, summed.
#[inline]
#[target_feature(enable = "avx2")]
fn dot(nibbles: __m256i, x: __m256i) -> __m256i {
    _mm256_madd_epi16(_mm256_maddubs_epi16(nibbles, x), _mm256_set1_epi16(1))
}

/// # Safety
/// Four bytes must be readable.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn int(at: *const u8) -> __m256i {
    // SAFETY: the caller's promise.
    _mm256_set1_epi32(unsafe { at.cast::<i32>().read_unaligned() })
}

/// # Safety
/// Four bytes must be readable.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn float(at: *const u8) -> __m256 {
    // SAFETY: the caller's promise.
    _mm256_set1_ps(unsafe { at.cast::<f32>().read_unaligned() })
}
