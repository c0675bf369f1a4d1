//! The unit of work of a linear, and which kernel computes it on which instruction set.

use super::portable;
#[cfg(target_arch = "x86_64")]
use super::{avx2, avx512};
use crate::isa::Isa;

/// A block of outputs: some rows of one panel's columns.
///
/// A kernel may read `rows` operand rows and one whole panel, and writes `columns` elements of each
/// of `rows` output rows.
pub(super) struct Tile {
    /// Operand and output rows, at most the kernel's maximum.
    pub(super) rows: usize,
    /// Length of the sum, before padding to the weights' group.
    pub(super) k: usize,
    /// First operand row.
    pub(super) x: *const u8,
    /// Bytes from one operand row to the next.
    pub(super) x_stride: usize,
    /// The weight panel.
    pub(super) w: *const u8,
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

/// What a kernel multiplies the weights with.
#[derive(Clone, Copy)]
pub(super) enum Operand {
    /// The activations as they are.
    F32,
    /// Activations rounded to bf16, rows padded to an even length with zeros.
    #[cfg(target_arch = "x86_64")]
    Bf16,
}

/// One format's kernel for one instruction set.
#[derive(Clone, Copy)]
pub(super) struct Kernel {
    /// The most rows of a tile.
    pub(super) max_rows: usize,
    /// How activations are prepared.
    pub(super) operand: Operand,
    pub(super) compute: unsafe fn(&Tile),
}

impl Kernel {
    /// Rows of the next tile when `left` remain: equal blocks rather than a thin last one.
    pub(super) fn height(&self, left: usize) -> usize {
        left.div_ceil(left.div_ceil(self.max_rows))
    }

    /// Computes one tile.
    ///
    /// # Safety
    /// The tile's pointers must cover what [`Tile`] says, its outputs must be written by no one else
    /// meanwhile, and the machine must have the kernel's instructions.
    pub(super) unsafe fn run(&self, tile: &Tile) {
        debug_assert!((1..=self.max_rows).contains(&tile.rows));
        // SAFETY: passed on.
        unsafe { (self.compute)(tile) }
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

/// The kernel for `f32` weights.
pub(super) fn f32_kernel(isa: Isa) -> Kernel {
    match isa {
        Isa::Portable => Kernel { max_rows: 1, operand: Operand::F32, compute: portable::f32_tile },
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2 => Kernel { max_rows: 4, operand: Operand::F32, compute: avx2::f32_tile },
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512 | Isa::Avx512Bf16 => {
            Kernel { max_rows: 8, operand: Operand::F32, compute: avx512::f32_tile }
        }
    }
}

/// The kernel for bf16 weights.
pub(super) fn bf16_kernel(isa: Isa) -> Kernel {
    match isa {
        Isa::Portable => Kernel { max_rows: 1, operand: Operand::F32, compute: portable::bf16_tile },
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2 => Kernel { max_rows: 4, operand: Operand::F32, compute: avx2::bf16_tile },
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512 => Kernel { max_rows: 8, operand: Operand::F32, compute: avx512::bf16_widen_tile },
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512Bf16 => Kernel { max_rows: 8, operand: Operand::Bf16, compute: avx512::bf16_dot_tile },
    }
}
