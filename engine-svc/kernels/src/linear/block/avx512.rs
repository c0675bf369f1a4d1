//! Block kernels for AVX-512 VNNI: unsigned weights times signed activations, four k per lane.
//!
//! With up to four rows all 48 columns of a panel are computed together, so that it is read once, front
//! to back; with more, 16 columns at a time, so that weights are unpacked once for up to twelve rows.
//!
//! Contract: see [`Tile`] and the layouts in the parent module and [`operand`](super::operand).
#![allow(clippy::needless_range_loop, reason = "an index names a row of several arrays")]

use std::arch::x86_64::*;

use super::operand::{MINUS_8_SUMS, MINUS_128_SUMS, RECORD, SCALE, SCALED_SUM};
use super::{BLOCK, Encoding, SCALES};
use crate::linear::WeightFormat;
use crate::linear::float::avx512::{VECTORS, fetch_ahead, store};
use crate::linear::tile::{PANEL, Tile};

/// The most rows of a tile.
pub(super) const MAX_ROWS: usize = 12;

/// Bytes of one group of 4 k across a panel.
const GROUP_BYTES: usize = PANEL * 4;

const Q8_0: u8 = 0;
const Q4_0: u8 = 1;
const Q4_1: u8 = 2;

macro_rules! kernel {
    ($(#[$doc:meta])* $name:ident, $format:ident) => {
        $(#[$doc])*
        ///
        /// # Safety
        /// As [`Tile`] says, on a machine with AVX-512 F and VNNI.
        pub(super) unsafe fn $name(tile: &Tile) {
            // SAFETY: passed on.
            unsafe {
                match tile.rows {
                    1 => rows::<1, 3, $format>(tile),
                    2 => rows::<2, 3, $format>(tile),
                    3 => rows::<3, 3, $format>(tile),
                    4 => rows::<4, 3, $format>(tile),
                    5 => rows::<5, 1, $format>(tile),
                    6 => rows::<6, 1, $format>(tile),
                    7 => rows::<7, 1, $format>(tile),
                    8 => rows::<8, 1, $format>(tile),
                    9 => rows::<9, 1, $format>(tile),
                    10 => rows::<10, 1, $format>(tile),
                    11 => rows::<11, 1, $format>(tile),
                    12 => rows::<12, 1, $format>(tile),
                    rows => unreachable!("a tile of {rows} rows"),
                }
            }
        }
    };
}

kernel!(
    /// `Q8_0` weights, up to 12 rows.
    q8_0_tile,
    Q8_0
);
kernel!(
    /// `Q4_0` weights, up to 12 rows.
    q4_0_tile,
    Q4_0
);
kernel!(
    /// `Q4_1` weights, up to 12 rows.
    q4_1_tile,
    Q4_1
);

const fn encoding(format: u8) -> Encoding {
    match format {
        Q8_0 => Encoding { format: WeightFormat::Q8_0, bits: 8, minimum: false },
        Q4_0 => Encoding { format: WeightFormat::Q4_0, bits: 4, minimum: false },
        _ => Encoding { format: WeightFormat::Q4_1, bits: 4, minimum: true },
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni,f16c")]
unsafe fn rows<const ROWS: usize, const WIDTH: usize, const FORMAT: u8>(tile: &Tile) {
    let block_bytes = const { encoding(FORMAT).panel_bytes() };
    let blocks = tile.k.div_ceil(BLOCK);
    for strip in (0..VECTORS).step_by(WIDTH) {
        if strip * 16 >= tile.columns {
            return;
        }
        let mut sums = [[_mm512_setzero_ps(); WIDTH]; ROWS];
        for block in 0..blocks {
            // SAFETY: the panel has `blocks` blocks, each operand row as many records.
            unsafe {
                let w = tile.w.add(block * block_bytes);
                let x = tile.x.add(block * RECORD);
                add_block::<ROWS, WIDTH, FORMAT>(&mut sums, w, strip, x, tile.x_stride);
            }
        }
        for row in 0..ROWS {
            for vector in 0..WIDTH {
                // SAFETY: passed on.
                unsafe { store(tile, row, strip + vector, sums[row][vector]) };
            }
        }
    }
}

/// Adds one block's products to the sums.
///
/// # Safety
/// `w` must point to a block of a panel of this format, `x` to a record of each row, `stride` apart.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni,f16c")]
unsafe fn add_block<const ROWS: usize, const WIDTH: usize, const FORMAT: u8>(
    sums: &mut [[__m512; WIDTH]; ROWS],
    w: *const u8,
    strip: usize,
    x: *const u8,
    stride: usize,
) {
    let nibble = _mm512_set1_epi8(15);
    let mut dots = [[_mm512_setzero_si512(); WIDTH]; ROWS];
    // SAFETY: the caller's promise covers every address below.
    unsafe {
        for row in 0..ROWS {
            let offset = match FORMAT {
                Q8_0 => int(x.add(row * stride + MINUS_128_SUMS)),
                Q4_0 => int(x.add(row * stride + MINUS_8_SUMS)),
                _ => _mm512_setzero_si512(),
            };
            dots[row] = [offset; WIDTH];
        }
        for group in 0..const { encoding(FORMAT).weight_bytes() / 4 } {
            let w = w.add(group * GROUP_BYTES);
            if strip == 0 {
                fetch_ahead(w);
            }
            for vector in 0..WIDTH {
                let weights = _mm512_load_si512(w.add((strip + vector) * 64).cast());
                let x = x.add(group * 4);
                if FORMAT == Q8_0 {
                    for row in 0..ROWS {
                        let x = int(x.add(row * stride));
                        dots[row][vector] = _mm512_dpbusd_epi32(dots[row][vector], weights, x);
                    }
                } else {
                    let low = _mm512_and_si512(weights, nibble);
                    let high = _mm512_and_si512(_mm512_srli_epi16::<4>(weights), nibble);
                    for row in 0..ROWS {
                        let (first, second) = (int(x.add(row * stride)), int(x.add(row * stride + 16)));
                        dots[row][vector] = _mm512_dpbusd_epi32(dots[row][vector], low, first);
                        dots[row][vector] = _mm512_dpbusd_epi32(dots[row][vector], high, second);
                    }
                }
            }
        }
        let scales = w.add(const { PANEL * encoding(FORMAT).weight_bytes() });
        for vector in 0..WIDTH {
            let at = scales.add((strip + vector) * 32);
            let scale = _mm512_cvtph_ps(_mm256_load_si256(at.cast()));
            for row in 0..ROWS {
                let x = x.add(row * stride);
                let dot = _mm512_cvtepi32_ps(dots[row][vector]);
                let scale = _mm512_mul_ps(scale, float(x.add(SCALE)));
                sums[row][vector] = _mm512_fmadd_ps(dot, scale, sums[row][vector]);
            }
            if FORMAT == Q4_1 {
                let minimum = _mm512_cvtph_ps(_mm256_load_si256(at.add(SCALES).cast()));
                for row in 0..ROWS {
                    let sum = float(x.add(row * stride + SCALED_SUM));
                    sums[row][vector] = _mm512_fmadd_ps(minimum, sum, sums[row][vector]);
                }
            }
        }
    }
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
