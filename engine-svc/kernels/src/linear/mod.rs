//! Linears over weights packed once: `y[M, N] = x[M, K] · W[N, K]ᵀ + b`.
//!
//! * [`PackedLinear`]: the packed matrix and its forward
//! * `panels`: how weights are laid out for the kernels
//! * `tile`: the unit of work, and which kernel computes it
//! * `portable`, …: the kernels, one file per instruction set
//!
//! Each output element is one accumulator summed over k in ascending order, whatever the number of
//! rows: this is what makes a linear batch-invariant.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod panels;
mod portable;
mod tile;

use half::bf16;

use crate::pool::{Pool, SharedMut};
use panels::{PANEL, Panels};
use tile::{Kernel, Operand, Tile};

/// Rows multiplied at a time, so that their operands stay in the second-level cache.
const ROWS_PER_PASS: usize = 512;

/// How weights are held in memory, and in what arithmetic the linear computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WeightFormat {
    /// 32-bit floats throughout.
    F32,
    /// bfloat16 weights, 32-bit accumulation. Activations are rounded to bfloat16 only where the dot
    /// product of AVX512-BF16 is the fastest way ([`Isa::Avx512Bf16`](crate::isa::Isa)).
    Bf16,
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
        let bias = bias.map(|bias| {
            assert_eq!(bias.len(), n, "one bias element per output");
            let mut padded = bias.to_vec();
            padded.resize(n.next_multiple_of(PANEL), 0.0);
            padded
        });
        let weights = match format {
            WeightFormat::F32 => Weights::F32(Panels::pack(pool, n, k, fill)),
            WeightFormat::Bf16 => Weights::Bf16(Panels::pack(pool, n, k, fill)),
        };
        PackedLinear { n, k, weights, bias }
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
        match self.weights {
            Weights::F32(_) => WeightFormat::F32,
            Weights::Bf16(_) => WeightFormat::Bf16,
        }
    }

    /// Bytes the packed weights occupy, padding included.
    pub fn bytes(&self) -> usize {
        let bias = self.bias.as_ref().map_or(0, |bias| size_of_val(&bias[..]));
        bias + match &self.weights {
            Weights::F32(panels) => panels.bytes(),
            Weights::Bf16(panels) => panels.bytes(),
        }
    }

    /// Computes `y[M, N]` from `x[M, K]`, for any M; NaN and infinities pass through.
    ///
    /// # Panics
    /// If the two do not hold the same whole number of rows.
    pub fn forward(&self, pool: &Pool, x: &[f32], y: &mut [f32], write: Write) {
        assert!(x.len().is_multiple_of(self.k), "{} is not rows of {}", x.len(), self.k);
        assert_eq!(y.len() / self.n * self.n, y.len(), "{} is not rows of {}", y.len(), self.n);
        assert_eq!(x.len() / self.k, y.len() / self.n, "inputs and outputs differ in rows");
        let passes = x.chunks(ROWS_PER_PASS * self.k).zip(y.chunks_mut(ROWS_PER_PASS * self.n));
        for (x, y) in passes {
            match &self.weights {
                Weights::F32(panels) => {
                    self.pass(pool, tile::f32_kernel(pool.isa()), panels.raw(), x, y, write);
                }
                Weights::Bf16(panels) => {
                    self.pass(pool, tile::bf16_kernel(pool.isa()), panels.raw(), x, y, write);
                }
            }
        }
    }

    fn pass(
        &self,
        pool: &Pool,
        kernel: Kernel,
        panels: (*const u8, usize),
        x: &[f32],
        y: &mut [f32],
        write: Write,
    ) {
        match kernel.operand {
            Operand::F32 => {
                self.multiply(pool, kernel, panels, (x.as_ptr().cast(), size_of::<f32>() * self.k), y, write);
            }
            #[cfg(target_arch = "x86_64")]
            Operand::Bf16 => {
                let stride = self.k.next_multiple_of(2);
                let rows = x.len() / self.k;
                pool.with_scratch(rows * stride * size_of::<bf16>(), |scratch| {
                    round_rows(pool, x, self.k, bytemuck::cast_slice_mut(scratch), stride);
                    let operand = (scratch.as_ptr(), stride * size_of::<bf16>());
                    self.multiply(pool, kernel, panels, operand, y, write);
                });
            }
        }
    }

    fn multiply(
        &self,
        pool: &Pool,
        kernel: Kernel,
        (weights, panel_bytes): (*const u8, usize),
        (operand, operand_stride): (*const u8, usize),
        y: &mut [f32],
        write: Write,
    ) {
        let (n, k) = (self.n, self.k);
        let rows = y.len() / n;
        let y = SharedMut::new(y);
        let sources = (Address(weights), Address(operand));
        let column = |panel: usize| {
            let sources = &sources;
            let first = panel * PANEL;
            let bias = self.bias.as_ref().map_or(std::ptr::null(), |bias| bias[first..].as_ptr());
            let mut row = 0;
            while row < rows {
                let height = kernel.height(rows - row);
                let tile = Tile {
                    rows: height,
                    k,
                    // SAFETY: the operand has `rows` rows of `operand_stride` bytes.
                    x: unsafe { sources.1.0.add(row * operand_stride) },
                    x_stride: operand_stride,
                    // SAFETY: the matrix has ⌈n / PANEL⌉ panels of `panel_bytes`.
                    w: unsafe { sources.0.0.add(panel * panel_bytes) },
                    y: y.at(row * n + first),
                    y_stride: n,
                    columns: (n - first).min(PANEL),
                    bias,
                    add: write == Write::Add,
                };
                // SAFETY: `tile` describes memory that is there, and no other tile covers its outputs;
                // the pool checked that this machine has the kernel's instructions.
                unsafe { kernel.run(&tile) };
                row += height;
            }
        };
        let panels = n.div_ceil(PANEL);
        if panels * rows * k < 4 * crate::pool::INLINE_ELEMENTS {
            (0..panels).for_each(column);
        } else {
            pool.share(panels, (panels / (8 * pool.threads())).max(1), |range| range.for_each(column));
        }
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
            }
        });
    }
}

/// A base address that jobs on all threads read from.
struct Address(*const u8);

// SAFETY: only read through, and the memory outlives the job.
unsafe impl Sync for Address {}

/// Rounds rows of `k` floats to bf16 rows of `stride` elements, zero beyond `k`.
#[cfg(target_arch = "x86_64")]
fn round_rows(pool: &Pool, x: &[f32], k: usize, out: &mut [bf16], stride: usize) {
    let out = SharedMut::new(out);
    pool.split(x.len() / k, k, |range| {
        for index in range {
            // SAFETY: `split` gives each row to one thread only.
            let to = unsafe { out.slice(index * stride, stride) };
            let (body, tail) = to.split_at_mut(k);
            // SAFETY: only kernels of AVX512-BF16 take bf16 operands.
            unsafe { avx512::round_to_bf16(&x[index * k..][..k], body) };
            tail.fill(bf16::ZERO);
        }
    });
}
