//! Kernels in plain Rust: what runs where no better kernel exists, and what the others are tested by.
//!
//! Contract: see [`Tile`]; a panel is `[⌈K / group⌉][48][group]`.

use half::bf16;

use super::panels::PANEL;
use super::tile::Tile;
use crate::isa::vectorised;

/// `f32` weights and operands.
///
/// # Safety
/// As [`Tile`] says.
pub(super) unsafe fn f32_tile(tile: &Tile) {
    // SAFETY: the panel holds k groups of 48.
    let w = unsafe { std::slice::from_raw_parts(tile.w.cast::<f32>(), tile.k * PANEL) };
    for row in 0..tile.rows {
        // SAFETY: each operand row holds k elements.
        let x = unsafe { std::slice::from_raw_parts(operand::<f32>(tile, row), tile.k) };
        let mut sums = [0.0; PANEL];
        for (x, w) in x.iter().zip(w.chunks_exact(PANEL)) {
            for (sum, w) in sums.iter_mut().zip(w) {
                *sum += x * w;
            }
        }
        // SAFETY: passed on.
        unsafe { store(tile, row, &sums) };
    }
}

/// bf16 weights and operands, each product and sum in `f32`.
///
/// # Safety
/// As [`Tile`] says.
pub(super) unsafe fn bf16_tile(tile: &Tile) {
    let padded = tile.k.next_multiple_of(2);
    // SAFETY: the panel holds ⌈k / 2⌉ groups of 48 pairs.
    let w = unsafe { std::slice::from_raw_parts(tile.w.cast::<bf16>(), padded * PANEL) };
    for row in 0..tile.rows {
        // SAFETY: each operand row holds k elements, padded as the panel is.
        let x = unsafe { std::slice::from_raw_parts(operand::<bf16>(tile, row), padded) };
        let mut sums = [0.0; PANEL];
        for (x, w) in x.chunks_exact(2).zip(w.chunks_exact(2 * PANEL)) {
            let (x0, x1) = (x[0].to_f32(), x[1].to_f32());
            for (sum, w) in sums.iter_mut().zip(w.chunks_exact(2)) {
                *sum += x0 * w[0].to_f32() + x1 * w[1].to_f32();
            }
        }
        // SAFETY: passed on.
        unsafe { store(tile, row, &sums) };
    }
}

fn operand<T>(tile: &Tile, row: usize) -> *const T {
    tile.x.wrapping_add(row * tile.x_stride).cast()
}

vectorised! {
    /// Rounds to the nearest bf16, ties to even; NaN stays NaN.
    pub(super) fn round_to_bf16(from: &[f32], to: &mut [bf16]) {
        for (from, to) in from.iter().zip(to) {
            let bits = from.to_bits();
            let rounded = bits.wrapping_add(0x7fff + (bits >> 16 & 1)) >> 16;
            let quiet_nan = bits >> 16 | 0x40;
            *to = bf16::from_bits(if from.is_nan() { quiet_nan } else { rounded } as u16);
        }
    }
}

/// Adds the bias and writes one output row.
///
/// # Safety
/// As [`Tile`] says.
unsafe fn store(tile: &Tile, row: usize, sums: &[f32; PANEL]) {
    // SAFETY: the tile owns these outputs.
    let y =
        unsafe { std::slice::from_raw_parts_mut(tile.y.add(row * tile.y_stride), tile.columns) };
    for (column, (y, sum)) in y.iter_mut().zip(sums).enumerate() {
        let bias = if tile.bias.is_null() {
            0.0
        } else {
            // SAFETY: a bias, where there is one, has 48 elements.
            unsafe { *tile.bias.add(column) }
        };
        let value = sum + bias;
        *y = if tile.add { *y + value } else { value };
    }
}
