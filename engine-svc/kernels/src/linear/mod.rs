//! Linears over weights packed once: `y[M, N] = x[M, K] · W[N, K]ᵀ + b`.
//!
//! * [`PackedLinear`]: the packed matrix and its forward
//! * [`GatedLinear`]: two of them, and the product of the one with the other's SiLU
//! * `argmax`: which output is largest
//! * `apart`: many rows, some at a time by each thread
//! * `pass`: rows against all of a matrix, tile by tile
//! * `strips`: many rows against weights that stay in the first-level cache
//! * `tile`: the unit of work, and what a kernel is
//! * `operand`: what activations become before they meet the weights
//! * `float`: `f32` and bf16 weights, their layout and their kernels by instruction set
//! * `block`: 8-bit and 4-bit weights with a scale per 32, likewise
//!
//! ```
//! use firstlight_kernels::linear::{PackedLinear, WeightFormat, Write};
//! use firstlight_kernels::pool::Pool;
//!
//! let pool = Pool::new(2);
//! let weights = [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]];
//! let linear = PackedLinear::pack(&pool, WeightFormat::Bf16, (2, 3), Some(&[0.5, 0.0]), |index, row| {
//!     row.copy_from_slice(&weights[index]);
//! });
//! let mut y = [0.0; 2];
//! linear.forward(&pool, &[1.0, 1.0, 1.0], &mut y, Write::Set);
//! assert_eq!(y, [6.5, 15.0]);
//! ```
//!
//! Each output element is one accumulator summed over k in ascending order, whatever the number of
//! rows: this is what makes a linear batch-invariant.

mod apart;
mod argmax;
mod block;
mod float;
mod gated;
mod operand;
mod pass;
mod strips;
mod tile;

use std::ops::Range;

use half::bf16;

use crate::disjoint::SharedMut;
use crate::norm::Norm;
use crate::pool::Pool;
use apart::{for_parts, rows_apart};
use block::{BLOCK, BlockPanels};
use float::{Panels, Weight};
pub use gated::GatedLinear;
use operand::Operand;
use pass::{Against, Out, Pass};
use strips::{STRIP, StripsKernel, StripsOut, Waiting};
use tile::PANEL;

/// Activations multiplied at a time, so that they stay in the second-level cache.
const ELEMENTS_PER_PASS: usize = 384 * 1024;

/// How weights are held in memory, and in what arithmetic the linear computes.
///
/// The `Q` formats are those of GGUF: blocks of 32 weights along k with a 16-bit scale (and for
/// `Q4_1` a minimum). With them activations too are quantised, to 8 bits with a scale per 32 of each
/// row, and multiplied as integers; a non-finite activation makes its row NaN. Weights to be quantised must
/// be finite.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WeightFormat {
    /// 32-bit floats throughout.
    F32,
    /// bfloat16 weights, 32-bit accumulation. Activations are rounded to bfloat16 only where products of two
    /// such are the fastest way ([`Isa::rounds_activations`](crate::isa::Isa::rounds_activations)).
    Bf16,
    /// 8-bit weights, symmetric.
    Q8_0,
    /// 4-bit weights, symmetric.
    Q4_0,
    /// 4-bit weights with a minimum.
    Q4_1,
}

impl WeightFormat {
    /// What quantising to 8 bits at load gives.
    pub const INT8: WeightFormat = WeightFormat::Q8_0;
    /// What quantising to 4 bits at load gives.
    pub const INT4: WeightFormat = WeightFormat::Q4_1;

    /// Bytes of `k` weights of one row in a GGUF file, for the block formats.
    pub fn row_bytes(self, k: usize) -> Option<usize> {
        let block = match self {
            WeightFormat::F32 | WeightFormat::Bf16 => return None,
            WeightFormat::Q8_0 => 34,
            WeightFormat::Q4_0 => 18,
            WeightFormat::Q4_1 => 20,
        };
        Some(k.div_ceil(BLOCK) * block)
    }
}

/// What a linear does with the previous contents of its output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Write {
    /// Overwrite them.
    Set,
    /// Add to them, as a residual connection does.
    Add,
}

/// A weight matrix `[n, k]` (and bias `[n]`) in the order the kernels read it.
#[derive(Debug)]
pub struct PackedLinear {
    n: usize,
    k: usize,
    weights: Weights,
    bias: Option<Vec<f32>>,
}

#[derive(Debug)]
enum Weights {
    F32(Panels<f32>),
    Bf16(Panels<bf16>),
    Blocks(BlockPanels),
}

impl PackedLinear {
    /// Packs `n` rows of `k` weights. `fill(index, row)` writes row `index`; it is called once for
    /// each, in any order and from several threads, so that no second copy of the matrix is needed.
    ///
    /// # Panics
    /// If `n` or `k` is zero, or `bias` has not `n` elements.
    pub fn pack<F>(
        pool: &Pool,
        format: WeightFormat,
        (n, k): (usize, usize),
        bias: Option<&[f32]>,
        fill: F,
    ) -> PackedLinear
    where
        F: Fn(usize, &mut [f32]) + Sync,
    {
        assert!(n > 0 && k > 0, "a linear of shape [{n}, {k}] is empty");
        let weights = match format {
            WeightFormat::F32 => Weights::F32(Panels::pack(pool, n, k, fill)),
            WeightFormat::Bf16 => Weights::Bf16(Panels::pack(pool, n, k, fill)),
            blocks => Weights::Blocks(BlockPanels::quantise(pool, blocks, n, k, fill)),
        };
        PackedLinear { n, k, weights, bias: pad(bias, n) }
    }

    /// Packs `n` rows of `k` weights that are already in one of the block formats, without expanding
    /// them: `fill(index, row)` writes the [`WeightFormat::row_bytes`] of row `index` as they stand in
    /// a GGUF file.
    ///
    /// # Panics
    /// If the format has no blocks, `k` is not a whole number of them, `n` or `k` is zero, or `bias`
    /// has not `n` elements.
    pub fn pack_blocks<F>(
        pool: &Pool,
        format: WeightFormat,
        (n, k): (usize, usize),
        bias: Option<&[f32]>,
        fill: F,
    ) -> PackedLinear
    where
        F: Fn(usize, &mut [u8]) + Sync,
    {
        assert!(n > 0 && k > 0 && k.is_multiple_of(BLOCK), "a linear of shape [{n}, {k}] in blocks");
        let weights = Weights::Blocks(BlockPanels::repack(pool, format, n, k, fill));
        PackedLinear { n, k, weights, bias: pad(bias, n) }
    }

    /// Output width, N.
    pub fn outputs(&self) -> usize {
        self.n
    }

    /// Input width, K.
    pub fn inputs(&self) -> usize {
        self.k
    }

    /// How the weights are held.
    pub fn format(&self) -> WeightFormat {
        match &self.weights {
            Weights::F32(_) => WeightFormat::F32,
            Weights::Bf16(_) => WeightFormat::Bf16,
            Weights::Blocks(panels) => panels.format(),
        }
    }

    /// Bytes the packed weights occupy, padding included.
    pub fn bytes(&self) -> usize {
        let bias = self.bias.as_ref().map_or(0, |bias| size_of_val(&bias[..]));
        bias + match &self.weights {
            Weights::F32(panels) => panels.bytes(),
            Weights::Bf16(panels) => panels.bytes(),
            Weights::Blocks(panels) => panels.bytes(),
        }
    }

    /// Computes `y[M, N]` from `x[M, K]`, for any M; NaN and infinities pass through.
    ///
    /// # Panics
    /// If the two do not hold the same whole number of rows.
    pub fn forward(&self, pool: &Pool, x: &[f32], y: &mut [f32], write: Write) {
        self.in_passes(pool, (x, None), (y, self.n), &|pool, pass, y| self.pass(pool, pass, y, write));
    }

    /// Computes `y[M, N]` from the normalized rows of `x[M, K]`: the same bits as [`Norm::forward`] and
    /// [`PackedLinear::forward`].
    ///
    /// # Panics
    /// As [`PackedLinear::forward`], and if the norm is of another width.
    pub fn forward_normed(&self, pool: &Pool, norm: &Norm, x: &[f32], y: &mut [f32], write: Write) {
        assert_eq!(norm.width(), self.k, "width of the norm");
        self.in_passes(pool, (x, Some(norm)), (y, self.n), &|pool, pass, y| self.pass(pool, pass, y, write));
    }

    fn pass(&self, pool: &Pool, pass: &Pass<'_>, y: &mut [f32], write: Write) {
        let (n, y) = (self.n, SharedMut::new(y));
        if let Some(kernel) = pass.strips_kernel() {
            return self.pass_in_strips(pool, pass, kernel, &y, write);
        }
        pass.for_columns(
            pool,
            (n.div_ceil(PANEL), PANEL),
            |_| (),
            |(), panel| {
                let first = panel * PANEL;
                for (index, rows) in pass.tiles().enumerate() {
                    let out = Out {
                        start: y.at(rows.start * n + first),
                        stride: n,
                        columns: (n - first).min(PANEL),
                        write,
                    };
                    // SAFETY: no other tile covers these outputs, and `for_columns` began a session.
                    unsafe { pass.compute(panel, index, rows, &out) };
                }
            },
        );
    }

    /// As [`PackedLinear::pass`], two strips at a time.
    fn pass_in_strips(
        &self,
        pool: &Pool,
        pass: &Pass<'_>,
        kernel: StripsKernel,
        y: &SharedMut<'_, f32>,
        write: Write,
    ) {
        let (n, pairs) = (self.n, self.n.div_ceil(2 * STRIP));
        // What lies beyond the outputs is padding, if it is there at all.
        let last = n.next_multiple_of(PANEL) / STRIP - 1;
        let pair_at = |pair: usize| [2 * pair, 2 * pair + 1].map(|strip| strip.min(last));
        pass.for_columns(
            pool,
            (pairs, 2 * STRIP),
            |_| Waiting::EMPTY,
            |waiting, pair| {
                let place = |rows: &Range<usize>| StripsOut {
                    starts: [2 * pair, 2 * pair + 1].map(|strip| {
                        let first = (strip * STRIP).min(n);
                        (y.at(rows.start * n + first), (n - first).min(STRIP))
                    }),
                    stride: n,
                };
                let strips = (pair_at(pair), pair_at(pair + 1));
                // SAFETY: no other pair covers these outputs, and `for_columns` began a session.
                pass.over_strips(strips, write, waiting, place, |_, pair| unsafe { kernel(&pair) });
            },
        );
    }

    /// Calls `work` with as many rows at a time as stay in the cache, `width` outputs each, and the pool that computes
    /// them: this one, or a thread of it alone.
    fn in_passes(
        &self,
        pool: &Pool,
        (x, norm): (&[f32], Option<&Norm>),
        (y, width): (&mut [f32], usize),
        work: &(impl Fn(&Pool, &Pass<'_>, &mut [f32]) + Sync),
    ) {
        let (k, rows) = (self.k, rows_of(x, self.k));
        assert_eq!(rows, rows_of(y, width), "inputs and outputs differ in rows");
        let against = self.against(pool);
        if let Some(each) = rows_apart(pool, against.kernel.operand, rows, k) {
            let y = SharedMut::new(y);
            return for_parts(pool, rows, each, |pool, part| {
                // SAFETY: each row is in one part.
                let y = unsafe { y.rows(&part, width) };
                self.in_passes(pool, (&x[part.start * k..part.end * k], norm), (y, width), work);
            });
        }
        let part = rows_per_pass(against.kernel.operand, rows, k);
        for (x, y) in x.chunks(part * k).zip(y.chunks_mut(part * width)) {
            Pass::prepare(pool, against, x, norm, |pass| work(pool, pass, y));
        }
    }

    /// The matrix as it is multiplied on this pool.
    fn against(&self, pool: &Pool) -> Against<'_> {
        let (kernel, (panels, panel_bytes)) = match &self.weights {
            Weights::F32(panels) => (f32::kernel(pool.isa()), panels.raw()),
            Weights::Bf16(panels) => (bf16::kernel(pool.isa()), panels.raw()),
            Weights::Blocks(panels) => (panels.kernel(pool.isa()), panels.raw()),
        };
        Against { kernel, panels, panel_bytes, bias: self.bias.as_deref(), k: self.k }
    }

    /// Writes the weights of row `ids[i]` to row `i` of `out[M, K]`, as an embedding does.
    ///
    /// # Panics
    /// If an id is not below [`PackedLinear::outputs`], or `out` has not one row per id.
    pub fn gather(&self, pool: &Pool, ids: &[u32], out: &mut [f32]) {
        assert_eq!(out.len(), ids.len() * self.k, "one output row per id");
        pool.for_rows(out, self.k, |index, row| {
            let id = ids[index] as usize;
            assert!(id < self.n, "row {id} of {}", self.n);
            match &self.weights {
                Weights::F32(panels) => panels.unpack_row(id, row),
                Weights::Bf16(panels) => panels.unpack_row(id, row),
                Weights::Blocks(panels) => panels.unpack_row(id, row),
            }
        });
    }
}

fn rows_of(x: &[f32], width: usize) -> usize {
    assert!(x.len().is_multiple_of(width), "{} is not rows of {width}", x.len());
    x.len() / width
}

/// How many of these rows are multiplied at a time: as many as stay in the cache, `widest` elements of each, but not so
/// few that reading the weights again takes longer than multiplying.
fn rows_per_pass(operand: Operand, rows: usize, widest: usize) -> usize {
    let most = (ELEMENTS_PER_PASS / widest).max(operand.fewest_rows());
    let passes = rows.div_ceil(most).max(1);
    rows.div_ceil(passes).max(1)
}

/// A bias padded to whole panels.
fn pad(bias: Option<&[f32]>, n: usize) -> Option<Vec<f32>> {
    bias.map(|bias| {
        assert_eq!(bias.len(), n, "one bias element per output");
        let mut padded = bias.to_vec();
        padded.resize(n.next_multiple_of(PANEL), 0.0);
        padded
    })
}
