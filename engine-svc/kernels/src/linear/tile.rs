//! The unit of work of a linear, and what a kernel is.

use super::operand::Operand;
use super::strips::StripsKernel;
#[cfg(target_arch = "x86_64")]
use crate::amx;
use crate::prefetch;

/// Outputs per panel of weights: three 512-bit vectors of accumulators.
pub(super) const PANEL: usize = 48;

/// The most rows that a tile of any kernel has.
pub(super) const MAX_ROWS: usize = 32;

/// Cache lines of one group of k in a panel.
const GROUP_LINES: usize = PANEL * size_of::<f32>() / 64;

/// Weights to bring into the cache while a tile is computed, so that reading memory and arithmetic
/// overlap: a few lines in every turn of the innermost loop.
#[derive(Clone, Copy)]
pub(super) struct Ahead {
    next: *const u8,
    lines: usize,
}

impl Ahead {
    /// Fetches one turn's lines.
    #[inline(always)]
    pub(super) fn fetch(&mut self) {
        prefetch::line(self.next);
        for line in 1..self.lines {
            prefetch::line(self.next.wrapping_add(64 * line));
        }
        self.next = self.next.wrapping_add(64 * self.lines);
    }
}

/// How the tiles that are computed from a panel share in fetching the next.
#[derive(Clone, Copy)]
pub(super) struct Shares {
    panel_bytes: usize,
    /// Lines that a tile fetches in one turn, and the bytes in all of them.
    lines: usize,
    bytes: usize,
}

impl Shares {
    /// Of so many tiles, by a kernel that reads so many groups of k in one turn.
    pub(super) fn new(panel_bytes: usize, tiles: usize, groups: usize) -> Shares {
        let per_turn = groups * GROUP_LINES;
        let lines = per_turn.div_ceil(tiles.max(1));
        Shares { panel_bytes, lines, bytes: panel_bytes * lines / per_turn }
    }

    /// What tile `index` of the panel at `w` fetches.
    pub(super) fn of_tile(&self, w: *const u8, index: usize) -> Ahead {
        let start = index * self.bytes;
        // Rounded up, the shares of the last tiles begin beyond the panel.
        let start = if start < self.panel_bytes { start } else { 0 };
        Ahead { next: w.wrapping_add(self.panel_bytes + start), lines: self.lines }
    }
}

/// A block of outputs: some rows of one panel's columns.
///
/// A kernel may read `rows` operand rows and one whole panel, and writes `columns` elements of each
/// of `rows` output rows.
pub(super) struct Tile {
    /// Operand and output rows, at most the kernel's maximum.
    pub(super) rows: usize,
    /// Length of the sum, before the padding that the weights' layout adds.
    pub(super) k: usize,
    /// First operand row.
    pub(super) x: *const u8,
    /// Bytes from one operand row to the next.
    pub(super) x_stride: usize,
    /// The weight panel.
    pub(super) w: *const u8,
    /// What to fetch meanwhile.
    pub(super) ahead: Ahead,
    /// First output.
    pub(super) y: *mut f32,
    /// Elements from one output row to the next.
    pub(super) y_stride: usize,
    /// Output columns, 1 to 48.
    pub(super) columns: usize,
    /// 48 bias values for this panel, or null.
    pub(super) bias: *const f32,
    /// Add to the outputs instead of overwriting them.
    pub(super) add: bool,
}

/// One format's kernel for one instruction set.
#[derive(Clone, Copy)]
pub(super) struct Kernel {
    /// The most rows of a tile, at most [`MAX_ROWS`].
    pub(super) max_rows: usize,
    /// How activations are prepared.
    pub(super) operand: Operand,
    pub(super) compute: TileKernel,
    /// For many rows, where weights can stay in the first-level cache.
    pub(super) strips: Option<StripsKernel>,
}

/// Computes one tile, see [`Kernel::run`].
pub(super) type TileKernel = unsafe fn(&Tile);

/// What a thread holds while it computes tiles.
pub(super) struct Session {
    #[cfg(target_arch = "x86_64")]
    _tiles: Option<amx::Tiles>,
}

impl Kernel {
    /// What this thread must hold while it runs the kernel.
    pub(super) fn begin(&self) -> Session {
        Session {
            // SAFETY: kernels with such operands are chosen only where tiles are permitted, and a thread
            // computes for one linear at a time.
            #[cfg(target_arch = "x86_64")]
            _tiles: matches!(self.operand, Operand::Bf16Tiles)
                .then(|| unsafe { amx::Tiles::configure(&amx::Shapes::FULL) }),
        }
    }

    /// Computes one tile.
    ///
    /// # Safety
    /// The tile's pointers must cover what [`Tile`] says, its outputs must be written by no one else
    /// meanwhile, the machine must have the kernel's instructions, and this thread a session of it.
    pub(super) unsafe fn run(&self, tile: &Tile) {
        debug_assert!((1..=self.max_rows).contains(&tile.rows));
        // SAFETY: passed on.
        unsafe { (self.compute)(tile) }
    }
}

/// A tile of outputs of its own memory.
#[repr(align(64))]
pub(super) struct Outputs([[f32; PANEL]; MAX_ROWS]);

impl Outputs {
    pub(super) const ZERO: Outputs = Outputs([[0.0; PANEL]; MAX_ROWS]);

    /// The first output; [`PANEL`] from one row to the next.
    pub(super) fn start(&mut self) -> *mut f32 {
        self.0.as_flattened_mut().as_mut_ptr()
    }

    /// The first rows, so many.
    pub(super) fn rows(&self, count: usize) -> &[[f32; PANEL]] {
        &self.0[..count]
    }

    /// The same, to write.
    pub(super) fn rows_mut(&mut self, count: usize) -> &mut [[f32; PANEL]] {
        &mut self.0[..count]
    }
}

/// Calls `$kernel::<ROWS>` for the tile's number of rows, one of those listed.
#[cfg(target_arch = "x86_64")]
macro_rules! by_rows {
    ($tile:ident, $kernel:ident, $($rows:literal),+) => {
        match $tile.rows {
            // SAFETY: the caller's promise is passed on.
            $($rows => unsafe { $kernel::<$rows>($tile) },)+
            rows => unreachable!("a tile of {rows} rows"),
        }
    };
}
#[cfg(target_arch = "x86_64")]
pub(super) use by_rows;

/// Adds the bias and writes one output row.
///
/// # Safety
/// As [`Tile`] says.
pub(super) unsafe fn store_row(tile: &Tile, row: usize, sums: &[f32; PANEL]) {
    // SAFETY: the tile owns these outputs.
    let y = unsafe { std::slice::from_raw_parts_mut(tile.y.add(row * tile.y_stride), tile.columns) };
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
