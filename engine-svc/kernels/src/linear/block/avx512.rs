//! Block kernels for AVX-512 VNNI: unsigned weights times signed activations, four k per lane.
//!
//! A tile of up to four rows and three strips is held in twelve integer sums for a block and twelve float
//! sums for the whole, while the strips stream by.
//!
//! Contract: see [`Tile`] and the layouts in the parent module and [`operand`](super::operand).
#![allow(clippy::needless_range_loop, reason = "an index names a row of several arrays")]

use std::arch::x86_64::*;

use super::operand::{
    MINUS_8_SUMS, MINUS_128_SUMS, RECORD, SCALE, SCALED_SUM, by_blocks, inverse, put_numbers,
};
use super::{BLOCK, Encoding, GROUP_BYTES, NUMBERS_BYTES, Q4_0, Q4_1, Q8_0};
use crate::linear::float::avx512::store;
use crate::linear::tile::{Ahead, Tile};

/// The most rows of a tile.
pub(super) const MAX_ROWS: usize = 4;

/// Strips of a panel, all computed together: an operand once loaded meets three vectors of weights.
const STRIPS: usize = 3;

tile_kernels!("AVX-512 F and VNNI");

#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni,f16c")]
unsafe fn rows<const ROWS: usize, const FORMAT: u8>(tile: &Tile) {
    let encoding = const { Encoding::numbered(FORMAT) };
    let blocks = tile.k.div_ceil(BLOCK);
    let strip_bytes = encoding.strip_bytes(blocks);
    let mut sums = [[_mm512_setzero_ps(); STRIPS]; ROWS];
    let mut ahead = tile.ahead;
    for block in 0..blocks {
        let numbers = encoding.numbers_start(blocks) + block * encoding.numbers() * NUMBERS_BYTES;
        // SAFETY: each strip has `blocks` blocks, each operand row as many records.
        unsafe {
            let part = Part {
                weights: tile.w.add(block * encoding.groups() * GROUP_BYTES),
                numbers: tile.w.add(numbers),
                strip_bytes,
                x: tile.x.add(block * RECORD),
                x_stride: tile.x_stride,
            };
            add_block::<ROWS, FORMAT>(&mut sums, &part, &mut ahead);
        }
    }
    for row in 0..ROWS {
        for strip in 0..STRIPS {
            // SAFETY: passed on.
            unsafe { store(tile, row, strip, sums[row][strip]) };
        }
    }
}

/// One block of a panel's first strip, and of the operand rows.
struct Part {
    weights: *const u8,
    numbers: *const u8,
    /// From one strip to the next.
    strip_bytes: usize,
    x: *const u8,
    /// From one operand row to the next.
    x_stride: usize,
}

/// Adds one block's products to the sums.
///
/// # Safety
/// The part must describe a panel of this format and `ROWS` rows.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni,f16c")]
unsafe fn add_block<const ROWS: usize, const FORMAT: u8>(
    sums: &mut [[__m512; STRIPS]; ROWS],
    part: &Part,
    ahead: &mut Ahead,
) {
    let nibble = _mm512_set1_epi8(15);
    let mut dots = [[_mm512_setzero_si512(); STRIPS]; ROWS];
    let (x, x_stride) = (part.x, part.x_stride);
    // SAFETY: the caller's promise covers every address below.
    unsafe {
        for row in 0..ROWS {
            let offset = match FORMAT {
                Q8_0 => int(x.add(row * x_stride + MINUS_128_SUMS)),
                Q4_0 => int(x.add(row * x_stride + MINUS_8_SUMS)),
                _ => _mm512_setzero_si512(),
            };
            dots[row] = [offset; STRIPS];
        }
        for group in 0..const { Encoding::numbered(FORMAT).groups() } {
            let x = x.add(group * 4);
            ahead.fetch();
            for strip in 0..STRIPS {
                let at = part.weights.add(group * GROUP_BYTES + strip * part.strip_bytes);
                let weights = _mm512_load_si512(at.cast());
                if FORMAT == Q8_0 {
                    for row in 0..ROWS {
                        let x = int(x.add(row * x_stride));
                        dots[row][strip] = _mm512_dpbusd_epi32(dots[row][strip], weights, x);
                    }
                } else {
                    let low = _mm512_and_si512(weights, nibble);
                    let high = _mm512_and_si512(_mm512_srli_epi16::<4>(weights), nibble);
                    for row in 0..ROWS {
                        let x = x.add(row * x_stride);
                        dots[row][strip] = _mm512_dpbusd_epi32(dots[row][strip], low, int(x));
                        dots[row][strip] = _mm512_dpbusd_epi32(dots[row][strip], high, int(x.add(16)));
                    }
                }
            }
        }
        for strip in 0..STRIPS {
            let at = part.numbers.add(strip * part.strip_bytes);
            let scale = _mm512_cvtph_ps(_mm256_load_si256(at.cast()));
            for row in 0..ROWS {
                let dot = _mm512_cvtepi32_ps(dots[row][strip]);
                let scale = _mm512_mul_ps(scale, float(x.add(row * x_stride + SCALE)));
                sums[row][strip] = _mm512_fmadd_ps(dot, scale, sums[row][strip]);
            }
            if FORMAT == Q4_1 {
                let minimum = _mm512_cvtph_ps(_mm256_load_si256(at.add(NUMBERS_BYTES).cast()));
                for row in 0..ROWS {
                    let sum = float(x.add(row * x_stride + SCALED_SUM));
                    sums[row][strip] = _mm512_fmadd_ps(minimum, sum, sums[row][strip]);
                }
            }
        }
    }
}

/// See [`operand`](super::operand).
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
pub(super) fn quantise_row(row: &[f32], out: &mut [u8]) {
    by_blocks(row, out, |from, to| quantise_block(from, to));
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
fn quantise_block(from: &[f32; BLOCK], to: &mut [u8; RECORD]) {
    /// Quiet and signalling NaN, both infinities.
    const NOT_FINITE: i32 = 0x99;
    // SAFETY: a block is two vectors.
    let (a, b) = unsafe { (_mm512_loadu_ps(from.as_ptr()), _mm512_loadu_ps(from.as_ptr().add(16))) };
    let largest = _mm512_reduce_max_ps(_mm512_max_ps(_mm512_abs_ps(a), _mm512_abs_ps(b)));
    let scale = largest / 127.0;
    let factor = _mm512_set1_ps(inverse(scale));
    let a_codes = _mm512_cvtps_epi32(_mm512_mul_ps(a, factor));
    let b_codes = _mm512_cvtps_epi32(_mm512_mul_ps(b, factor));
    // SAFETY: a record begins with the bytes of a block.
    unsafe {
        _mm_storeu_si128(to.as_mut_ptr().cast(), _mm512_cvtepi32_epi8(a_codes));
        _mm_storeu_si128(to.as_mut_ptr().add(16).cast(), _mm512_cvtepi32_epi8(b_codes));
    }
    let sum = _mm512_reduce_add_epi32(_mm512_add_epi32(a_codes, b_codes));
    let not_finite = _mm512_fpclass_ps_mask::<NOT_FINITE>(a) | _mm512_fpclass_ps_mask::<NOT_FINITE>(b);
    put_numbers(to, if not_finite == 0 { scale } else { f32::NAN }, sum);
}

/// # Safety
/// Four bytes must be readable.
#[inline]
#[target_feature(enable = "avx512f")]
unsafe fn int(at: *const u8) -> __m512i {
    // SAFETY: the caller's promise.
    _mm512_set1_epi32(unsafe { at.cast::<i32>().read_unaligned() })
}

/// # Safety
/// Four bytes must be readable.
#[inline]
#[target_feature(enable = "avx512f")]
unsafe fn float(at: *const u8) -> __m512 {
    // SAFETY: the caller's promise.
    _mm512_set1_ps(unsafe { at.cast::<f32>().read_unaligned() })
}
