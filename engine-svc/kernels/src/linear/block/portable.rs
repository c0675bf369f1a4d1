//! Block kernels in plain Rust: what runs where no better kernel exists, and what the others are
//! tested by.
//!
//! Contract: see [`Tile`] and the layouts in the parent module and [`operand`](super::operand).

use super::operand::{RECORD, SCALE, SCALED_SUM};
use super::{BLOCK, Column, Encoding, Q4_0, Q4_1, Q8_0};
use crate::linear::tile::{PANEL, Tile, TileKernel, store_row};

/// Tiles of one row.
pub(super) const KERNELS: [TileKernel; 3] = [rows::<Q8_0>, rows::<Q4_0>, rows::<Q4_1>];

/// # Safety
/// As [`Tile`] says.
unsafe fn rows<const FORMAT: u8>(tile: &Tile) {
    let encoding = const { Encoding::numbered(FORMAT) };
    let blocks = tile.k.div_ceil(BLOCK);
    // SAFETY: a panel of this encoding has so many bytes.
    let panel = unsafe { std::slice::from_raw_parts(tile.w, encoding.panel_bytes(blocks)) };
    for row in 0..tile.rows {
        // SAFETY: each operand row holds a record for each block.
        let x = unsafe { std::slice::from_raw_parts(tile.x.add(row * tile.x_stride), blocks * RECORD) };
        let mut sums = [0.0; PANEL];
        for (column, sum) in sums.iter_mut().enumerate() {
            let column = Column::new(encoding, blocks, panel, column);
            for (block, x) in x.as_chunks::<RECORD>().0.iter().enumerate() {
                let number = |at: usize| f32::from_ne_bytes([x[at], x[at + 1], x[at + 2], x[at + 3]]);
                let product = |k: usize| i32::from(column.byte(block, k)) * i32::from(x[k].cast_signed());
                let dot: i32 = (0..BLOCK).map(product).sum();
                let (scale, added) = column.scales(block);
                *sum += scale * number(SCALE) * dot as f32 + added * number(SCALED_SUM);
            }
        }
        // SAFETY: passed on.
        unsafe { store_row(tile, row, &sums) };
    }
}
