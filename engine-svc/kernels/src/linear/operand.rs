//! What a kernel multiplies weights with, and how activations become that.

use std::ops::Range;

use super::block;
#[cfg(target_arch = "x86_64")]
use super::float;
use super::strips::Gated;
#[cfg(target_arch = "x86_64")]
use crate::amx;
use crate::disjoint::SharedMut;
use crate::norm::Norm;
use crate::pool::Pool;

/// Columns that are normalized at a time.
const COLUMNS: usize = 128;

/// What a kernel multiplies the weights with.
#[derive(Clone, Copy)]
pub(super) enum Operand {
    /// The activations as they are.
    F32,
    /// Activations rounded to bf16, see [`float::operand`](super::float::operand).
    #[cfg(target_arch = "x86_64")]
    Bf16,
    /// The same in the order of the tiles of AMX.
    #[cfg(target_arch = "x86_64")]
    Bf16Tiles,
    /// Activations quantised in blocks of 32, see [`block::operand`](super::block::operand).
    Blocks,
}

impl Operand {
    /// Rows that lie together: tiles of outputs begin at a multiple, and so many are prepared.
    pub(super) fn row_group(self) -> usize {
        match self {
            #[cfg(target_arch = "x86_64")]
            Operand::Bf16Tiles => amx::ROWS,
            _ => 1,
        }
    }

    /// Groups of k that a kernel multiplies in one turn of its innermost loop.
    pub(super) fn groups_per_turn(self) -> usize {
        match self {
            #[cfg(target_arch = "x86_64")]
            Operand::Bf16Tiles => amx::ROWS,
            _ => 1,
        }
    }

    /// Bytes that each row of `k` activations takes once prepared.
    pub(super) fn row_bytes(self, k: usize) -> usize {
        match self {
            Operand::F32 => 0,
            #[cfg(target_arch = "x86_64")]
            Operand::Bf16 => float::operand::row_bytes(k),
            #[cfg(target_arch = "x86_64")]
            Operand::Bf16Tiles => float::operand::tiled_row_bytes(k),
            Operand::Blocks => block::operand::row_bytes(k),
        }
    }

    /// Bytes that so many rows take.
    pub(super) fn bytes(self, rows: usize, k: usize) -> usize {
        (rows.next_multiple_of(self.row_group()) * self.row_bytes(k)).next_multiple_of(64)
    }

    /// Prepares rows of `k` activations in `out`; returns where they are, and the bytes of each row there.
    pub(super) fn prepare(self, pool: &Pool, x: &[f32], k: usize, out: &mut [u8]) -> (*const u8, usize) {
        match self {
            Operand::F32 => return (x.as_ptr().cast(), size_of::<f32>() * k),
            #[cfg(target_arch = "x86_64")]
            Operand::Bf16 => float::operand::round_rows(pool, x, k, out),
            #[cfg(target_arch = "x86_64")]
            Operand::Bf16Tiles => float::operand::tile_rows(pool, x, k, out),
            Operand::Blocks => block::operand::quantise_rows(pool, x, k, out),
        }
        (out.as_ptr(), self.row_bytes(k))
    }

    /// As [`Operand::prepare`] of normalized rows, where rows can be written some columns at a time.
    pub(super) fn prepare_normed(
        self,
        pool: &Pool,
        x: &[f32],
        norm: &Norm,
        out: &mut [u8],
    ) -> (*const u8, usize) {
        let (isa, k) = (pool.isa(), norm.width());
        let place = (out.as_ptr(), self.row_bytes(k));
        let out = SharedMut::new(out);
        pool.split(x.len() / k, k, |range| {
            let mut columns = [0.0; COLUMNS];
            for index in range {
                let row = norm.row(isa, &x[index * k..][..k]);
                for first in (0..k).step_by(COLUMNS) {
                    let columns = &mut columns[..COLUMNS.min(k - first)];
                    row.write(first, columns);
                    // SAFETY: each row is handed to one thread only.
                    unsafe { self.put(&out, k, index, first, columns) };
                }
            }
        });
        place
    }

    /// Whether rows can be written some columns at a time, by [`Operand::put`]: where no number is held for several
    /// columns together.
    pub(super) fn takes_columns(self) -> bool {
        !matches!(self, Operand::Blocks | Operand::F32)
    }

    /// As many rows make up for reading all weights from memory.
    pub(super) fn fewest_rows(self) -> usize {
        match self {
            #[cfg(target_arch = "x86_64")]
            Operand::Bf16Tiles => 192,
            _ => 1,
        }
    }

    /// Whether products are so fast that operands which another core wrote would arrive too late.
    pub(super) fn outruns_sharing(self) -> bool {
        match self {
            #[cfg(target_arch = "x86_64")]
            Operand::Bf16Tiles => true,
            _ => false,
        }
    }

    /// Writes activations `first..` of one prepared row, as many as there are values: an even number unless they are
    /// the last. `first` is a multiple of 16.
    ///
    /// # Safety
    /// `out` must be prepared rows of `k` activations, whose columns no one else has meanwhile.
    #[cfg_attr(
        not(target_arch = "x86_64"),
        expect(unused_variables, reason = "no operand takes columns there")
    )]
    pub(super) unsafe fn put(
        self,
        out: &SharedMut<'_, u8>,
        k: usize,
        row: usize,
        first: usize,
        values: &[f32],
    ) {
        match self {
            // SAFETY: passed on.
            #[cfg(target_arch = "x86_64")]
            Operand::Bf16 => unsafe { float::operand::put_row(out, k, row, first, values) },
            // SAFETY: passed on.
            #[cfg(target_arch = "x86_64")]
            Operand::Bf16Tiles => unsafe { float::operand::put_tiled(out, k, row, first, values) },
            Operand::F32 | Operand::Blocks => unreachable!("rows that are prepared whole"),
        }
    }

    /// Whether so many features can be written a strip at a time, by [`Operand::put_gated`].
    #[cfg_attr(
        not(target_arch = "x86_64"),
        expect(unused_variables, reason = "no operand takes columns there")
    )]
    pub(super) fn takes_gated(self, features: usize) -> bool {
        match self {
            #[cfg(target_arch = "x86_64")]
            Operand::Bf16Tiles => features.is_multiple_of(float::operand::TILE_K),
            _ => false,
        }
    }

    /// What is to become columns `first` to `first + 16` of some prepared rows of `features`, from outputs of gate and
    /// up. `first` is a multiple of 16, as is the first row.
    #[cfg_attr(
        not(target_arch = "x86_64"),
        expect(unused_variables, reason = "no operand takes columns there")
    )]
    pub(super) fn gated(
        self,
        (gate, up): (*const f32, *const f32),
        rows: Range<usize>,
        out: &SharedMut<'_, u8>,
        features: usize,
        first: usize,
    ) -> Gated {
        match self {
            #[cfg(target_arch = "x86_64")]
            Operand::Bf16Tiles => Gated {
                gate,
                up,
                rows: rows.len(),
                to: out.at(float::operand::place_in_tiles(features, rows.start, first)),
                group_bytes: self.row_group() * self.row_bytes(features),
            },
            _ => unreachable!("an operand that takes no gated strips"),
        }
    }

    /// Activates all rows.
    ///
    /// # Safety
    /// They must be [`Operand::gated`] of this operand, whose columns no one else has meanwhile.
    #[cfg_attr(
        not(target_arch = "x86_64"),
        expect(unused_variables, reason = "no operand takes columns there")
    )]
    pub(super) unsafe fn put_gated(self, gated: &Gated) {
        match self {
            // SAFETY: passed on.
            #[cfg(target_arch = "x86_64")]
            Operand::Bf16Tiles => unsafe { float::operand::put_gated(gated, 0..gated.rows) },
            _ => unreachable!("an operand that takes no gated strips"),
        }
    }
}
