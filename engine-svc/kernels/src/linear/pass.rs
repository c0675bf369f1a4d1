//! Some rows of activations against a whole matrix, tile by tile.
//!
//! Contract of the `unsafe` here: a pass points to panels and prepared activations that outlive it, and a tile of
//! it reads only those.

use std::ops::Range;

use super::Write;
use super::tile::{Kernel, PANEL, Shares, Tile};
use crate::norm::Norm;
use crate::pool::{INLINE_ELEMENTS, Pool};

/// A matrix, and what multiplies with it on this machine.
#[derive(Clone, Copy)]
pub(super) struct Against<'a> {
    pub(super) kernel: Kernel,
    pub(super) panels: *const u8,
    pub(super) panel_bytes: usize,
    pub(super) bias: Option<&'a [f32]>,
    pub(super) k: usize,
}

/// Rows prepared for a kernel, and the panels that it multiplies them with.
pub(super) struct Pass<'a> {
    pub(super) against: Against<'a>,
    pub(super) operand: *const u8,
    pub(super) operand_stride: usize,
    pub(super) rows: usize,
    shares: Shares,
}

// SAFETY: only read through, see the contract at the top.
unsafe impl Sync for Pass<'_> {}

/// Where the outputs of a tile go.
pub(super) struct Out {
    /// The first one.
    pub(super) start: *mut f32,
    /// Elements from one row to the next.
    pub(super) stride: usize,
    /// Outputs per row, 1 to 48.
    pub(super) columns: usize,
    pub(super) write: Write,
}

impl Pass<'_> {
    /// Prepares rows in scratch memory for as long as `work` runs.
    pub(super) fn prepare(
        pool: &Pool,
        against: Against<'_>,
        x: &[f32],
        norm: Option<&Norm>,
        work: impl FnOnce(&Pass<'_>),
    ) {
        let (rows, operand) = (x.len() / against.k, against.kernel.operand);
        let bytes = operand.bytes(rows, against.k);
        let normed_bytes = match norm {
            Some(_) if !operand.takes_columns() => size_of_val(x),
            _ => 0,
        };
        pool.with_scratch(bytes + normed_bytes, |scratch| {
            let (prepared, normed) = scratch.split_at_mut(bytes);
            let place = match norm {
                None => operand.prepare(pool, x, against.k, prepared),
                Some(norm) if normed_bytes == 0 => operand.prepare_normed(pool, x, norm, prepared),
                Some(norm) => {
                    let normed = bytemuck::cast_slice_mut(normed);
                    norm.forward(pool, x, normed);
                    operand.prepare(pool, normed, against.k, prepared)
                }
            };
            work(&Pass::new(against, place, rows));
        });
    }

    /// Of rows that are prepared already: where they are, and the bytes of each.
    pub(super) fn new(
        against: Against<'_>,
        (operand, operand_stride): (*const u8, usize),
        rows: usize,
    ) -> Pass<'_> {
        let tiles = rows.div_ceil(against.kernel.max_rows);
        let shares = Shares::new(against.panel_bytes, tiles, against.kernel.operand.groups_per_turn());
        Pass { against, operand, operand_stride, rows, shares }
    }

    /// Runs `job(state, item)` for each of `0..items`, so many columns of the matrix, on the threads of the pool, which
    /// hold what the kernel needs meanwhile; each has a state of its own, made by `begin(thread)`.
    pub(super) fn for_columns<S>(
        &self,
        pool: &Pool,
        (items, columns): (usize, usize),
        begin: impl Fn(usize) -> S + Sync,
        job: impl Fn(&mut S, usize) + Sync,
    ) {
        let begin = |thread: usize| (begin(thread), self.against.kernel.begin());
        if items * columns * self.rows * self.against.k < 4 * INLINE_ELEMENTS {
            let (mut state, _session) = begin(0);
            (0..items).for_each(|item| job(&mut state, item));
        } else {
            pool.share_with(items, begin, |(state, _session), item| job(state, item));
        }
    }

    /// The rows of each tile of a panel.
    pub(super) fn tiles(&self) -> impl Iterator<Item = Range<usize>> {
        let group = self.against.kernel.operand.row_group();
        let (tiles, groups, rows) = (self.tile_count(), self.rows.div_ceil(group), self.rows);
        let first = move |index: usize| (groups * index / tiles * group).min(rows);
        (0..tiles).map(move |index| first(index)..first(index + 1))
    }

    fn tile_count(&self) -> usize {
        self.rows.div_ceil(self.against.kernel.max_rows)
    }

    /// Computes tile `index` of a panel.
    ///
    /// # Safety
    /// The panel must be one of the matrix, `rows` those of the tile, the outputs there and written by no one else,
    /// and the thread inside [`Pass::for_columns`] of a pool whose instruction set has the kernel.
    pub(super) unsafe fn compute(&self, panel: usize, index: usize, rows: Range<usize>, out: &Out) {
        // SAFETY: the matrix has this panel.
        let w = unsafe { self.against.panels.add(panel * self.against.panel_bytes) };
        let tile = Tile {
            rows: rows.len(),
            k: self.against.k,
            // SAFETY: the operand has these rows.
            x: unsafe { self.operand.add(rows.start * self.operand_stride) },
            x_stride: self.operand_stride,
            w,
            ahead: self.shares.of_tile(w, index),
            y: out.start,
            y_stride: out.stride,
            columns: out.columns,
            bias: self.against.bias.map_or(std::ptr::null(), |bias| bias[panel * PANEL..].as_ptr()),
            add: out.write == Write::Add,
        };
        // SAFETY: the tile describes memory that is there; the rest is the caller's promise.
        unsafe { self.against.kernel.run(&tile) };
    }
}
