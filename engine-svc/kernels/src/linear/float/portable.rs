//! Kernels in plain Rust: what runs where no better kernel exists, and what the others are tested by.
//!
//! Contract: see [`Tile`]; a panel is `[⌈K / group⌉][48][group]`.

use half::bf16;

use crate::linear::tile::{PANEL, Tile, store_row};

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
        let mut ahead = tile.ahead;
        for (x, w) in x.iter().zip(w.chunks_exact(PANEL)) {
            ahead.fetch();
            for (sum, w) in sums.iter_mut().zip(w) {
                *sum += x * w;
            }
        }
        // SAFETY: passed on.
        unsafe { store_row(tile, row, &sums) };
    }
}

/// bf16 weights and `f32` operands, each product and sum in `f32`.
///
/// # Safety
/// As [`Tile`] says.
pub(super) unsafe fn bf16_tile(tile: &Tile) {
    let padded = tile.k.next_multiple_of(2);
    // SAFETY: the panel holds ⌈k / 2⌉ groups of 48 pairs.
    let w = unsafe { std::slice::from_raw_parts(tile.w.cast::<bf16>(), padded * PANEL) };
    for row in 0..tile.rows {
        // SAFETY: each operand row holds k elements.
        let x = unsafe { std::slice::from_raw_parts(operand::<f32>(tile, row), tile.k) };
        let mut sums = [0.0; PANEL];
        let mut ahead = tile.ahead;
        for (x, w) in x.chunks(2).zip(w.chunks_exact(2 * PANEL)) {
            ahead.fetch();
            for (index, x) in x.iter().enumerate() {
                for (sum, w) in sums.iter_mut().zip(w.chunks_exact(2)) {
                    *sum += x * widen(w[index]);
                }
            }
        }
        // SAFETY: passed on.
        unsafe { store_row(tile, row, &sums) };
    }
}

fn widen(value: bf16) -> f32 {
    f32::from_bits(u32::from(value.to_bits()) << 16)
}

fn operand<T>(tile: &Tile, row: usize) -> *const T {
    tile.x.wrapping_add(row * tile.x_stride).cast()
}
