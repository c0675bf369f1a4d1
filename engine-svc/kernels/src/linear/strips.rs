//! Many rows against two strips of weights at a time, which stay in the first-level cache while the rows pass by.
//!
//! A strip is 16 columns of a panel. Where two of them are longer than that cache holds, k goes in parts, between which
//! the sums wait in memory: each output is still one accumulator over ascending k.
//!
//! Contract of the `unsafe` here: see [`pass`](super::pass).

use std::mem::MaybeUninit;
use std::ops::Range;

use super::Write;
use super::pass::Pass;
use super::tile::{MAX_ROWS, PANEL};

/// Columns of a strip.
pub(super) const STRIP: usize = 16;

/// Strips in a panel.
const STRIPS: usize = PANEL / STRIP;

/// Rows that pass by before the next part of k: so many sums wait.
const ROWS_WAITING: usize = 256;

/// Elements of k that a kernel multiplies in one turn.
pub(super) const TURN_K: usize = 32;

/// The longest part of k: two strips of it take three quarters of a first-level cache of 48 KiB.
const MAX_K: usize = 18 * TURN_K;

/// Two strips of weights and the rows that they are multiplied with.
///
/// A kernel may read `rows` operand rows, `k` of both strips, and the sums where it does not begin; it writes the sums,
/// and where it ends `columns` elements of each of `rows` output rows of both.
#[cfg_attr(not(target_arch = "x86_64"), expect(dead_code, reason = "no kernel keeps weights there"))]
pub(super) struct StripPair {
    /// Operand and output rows, at most [`MAX_ROWS`].
    pub(super) rows: usize,
    /// Length of this part of the sum, before padding.
    pub(super) k: usize,
    /// First operand row of this part.
    pub(super) x: *const u8,
    /// Bytes from one operand row to the next.
    pub(super) x_stride: usize,
    pub(super) strips: [Strip; 2],
    /// Which of the rows of weights that one turn reads are to be fetched of the strips after these.
    pub(super) ahead: Range<usize>,
    /// 32 rows of sums, a cache line for either strip.
    pub(super) sums: *mut f32,
    /// The first part of k, before which there are no sums.
    pub(super) begins: bool,
    /// The last part of k, after which the outputs are written.
    pub(super) ends: bool,
    /// Elements from one output row to the next.
    pub(super) y_stride: usize,
    /// Add to the outputs instead of overwriting them.
    pub(super) add: bool,
    /// Outputs of an earlier pair to be activated meanwhile: before outputs are written, which may be in their place.
    pub(super) gated: Gated,
}

/// One of two strips.
#[cfg_attr(not(target_arch = "x86_64"), expect(dead_code, reason = "no kernel keeps weights there"))]
pub(super) struct Strip {
    pub(super) w: *const u8,
    /// The strip after it, any address.
    pub(super) next: *const u8,
    /// First output.
    pub(super) y: *mut f32,
    /// Output columns, 0 to 16.
    pub(super) columns: usize,
    /// A bias for each column, or null.
    pub(super) bias: *const f32,
}

/// Rows of a strip of gate and one of up, and where the product of the one with the other's SiLU goes.
#[cfg_attr(not(target_arch = "x86_64"), expect(dead_code, reason = "no kernel keeps weights there"))]
pub(super) struct Gated {
    /// [`STRIP`] values for each row.
    pub(super) gate: *const f32,
    pub(super) up: *const f32,
    pub(super) rows: usize,
    /// In an operand that [takes](super::operand::Operand::takes_gated) gated strips.
    pub(super) to: *mut u8,
    /// Bytes from one group of rows there to the next.
    pub(super) group_bytes: usize,
}

impl Gated {
    /// No rows.
    pub(super) const NONE: Gated = Gated {
        gate: std::ptr::null(),
        up: std::ptr::null(),
        rows: 0,
        to: std::ptr::null_mut(),
        group_bytes: 0,
    };
}

/// Computes two strips, see [`StripPair`].
pub(super) type StripsKernel = unsafe fn(&StripPair);

/// Where outputs of two strips go.
pub(super) struct StripsOut {
    /// The first of either, and how many columns.
    pub(super) starts: [(*mut f32, usize); 2],
    /// Elements from one row to the next.
    pub(super) stride: usize,
}

/// Room for the sums of rows that wait for the next part of k.
#[repr(align(64))]
pub(super) struct Waiting(MaybeUninit<[[f32; 2 * STRIP]; ROWS_WAITING]>);

impl Waiting {
    pub(super) const EMPTY: Waiting = Waiting(MaybeUninit::uninit());

    /// The sums of row `index`.
    fn row(&mut self, index: usize) -> *mut f32 {
        assert!(index < ROWS_WAITING);
        self.0.as_mut_ptr().cast::<f32>().wrapping_add(index * 2 * STRIP)
    }
}

/// Outputs of one strip in memory of their own.
#[repr(align(64))]
pub(super) struct StripOutputs([[f32; STRIP]; MAX_ROWS]);

impl StripOutputs {
    pub(super) const ZERO: StripOutputs = StripOutputs([[0.0; STRIP]; MAX_ROWS]);

    /// The first output; [`STRIP`] from one row to the next.
    pub(super) fn start(&mut self) -> *mut f32 {
        self.0.as_flattened_mut().as_mut_ptr()
    }
}

impl Pass<'_> {
    /// The kernel by which weights stay, where there is one and rows are more than one tile.
    pub(super) fn strips_kernel(&self) -> Option<StripsKernel> {
        self.against.kernel.strips.filter(|_| self.rows > MAX_ROWS)
    }

    /// Goes through all rows of two strips, fetching the two `next`: calls `compute(rows, pair)` for some of them at a
    /// time, whose outputs go where `place(rows)` says.
    pub(super) fn over_strips(
        &self,
        (strips, next): ([usize; 2], [usize; 2]),
        write: Write,
        waiting: &mut Waiting,
        place: impl Fn(&Range<usize>) -> StripsOut,
        mut compute: impl FnMut(Range<usize>, StripPair),
    ) {
        let (k, operand) = (self.against.k, self.against.kernel.operand);
        let turn = operand.groups_per_turn();
        let parts = k.div_ceil(MAX_K);
        let part = k.div_ceil(parts).next_multiple_of(TURN_K);
        for begin in (0..self.rows).step_by(ROWS_WAITING) {
            let end = self.rows.min(begin + ROWS_WAITING);
            let share = turn.div_ceil((end - begin).div_ceil(MAX_ROWS));
            for from in (0..k).step_by(part) {
                let to = k.min(from + part);
                for (index, first) in (begin..end).step_by(MAX_ROWS).enumerate() {
                    let rows = first..end.min(first + MAX_ROWS);
                    let out = place(&rows);
                    // Only where sums wait has each row a place of its own.
                    let sums = waiting.row(if parts > 1 { first - begin } else { 0 });
                    let pair = StripPair {
                        rows: rows.len(),
                        k: to - from,
                        x: self.operand_at(first, from),
                        x_stride: self.operand_stride,
                        strips: [0, 1]
                            .map(|which| self.strip(strips[which], next[which], from, out.starts[which])),
                        ahead: (index * share).min(turn)..((index + 1) * share).min(turn),
                        sums,
                        begins: from == 0,
                        ends: to == k,
                        y_stride: out.stride,
                        add: write == Write::Add,
                        gated: Gated::NONE,
                    };
                    compute(rows, pair);
                }
            }
        }
    }

    /// Strip `index` from element `from` of k on, a multiple of a turn.
    fn strip(&self, index: usize, next: usize, from: usize, (y, columns): (*mut f32, usize)) -> Strip {
        let against = &self.against;
        let skipped = from * against.panel_bytes / against.k.next_multiple_of(TURN_K);
        let weights = |strip: usize| {
            let column = strip % STRIPS * STRIP * size_of::<f32>();
            against.panels.wrapping_add(strip / STRIPS * against.panel_bytes + column + skipped)
        };
        Strip {
            w: weights(index),
            next: weights(next),
            y,
            columns,
            bias: against.bias.map_or(std::ptr::null(), |bias| bias[index * STRIP..].as_ptr()),
        }
    }

    /// Row `first` of the operand, the first of a group, from element `from` of k on, a multiple of a turn.
    fn operand_at(&self, first: usize, from: usize) -> *const u8 {
        let group_bytes = self.against.kernel.operand.row_group() * self.operand_stride;
        let skipped = from * group_bytes / self.against.k.next_multiple_of(TURN_K);
        self.operand.wrapping_add(first * self.operand_stride + skipped)
    }
}
