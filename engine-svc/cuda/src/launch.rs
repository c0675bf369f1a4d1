//! Launch shapes: which kernel, with how many blocks, threads and bytes of shared memory.

use crate::source::Family;

/// Rows of queries that one block of `paged_prefill` takes.
pub const PREFILL_TILE_ROWS: usize = 64;

/// Most blocks that element-wise kernels are launched with; each takes every such block of elements.
const ELEMENTWISE_BLOCKS: usize = 4096;

/// A kernel and its shape.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Launch {
    /// The file that it is in.
    pub family: Family,
    /// Its name there.
    pub kernel: &'static str,
    /// Blocks: x, y, z.
    pub grid: [u32; 3],
    /// Threads of a block.
    pub threads: u32,
    /// Bytes of dynamic shared memory of a block.
    pub shared_bytes: u32,
}

/// Sizes of a decode attention.
#[derive(Debug, Clone, Copy)]
pub struct DecodeShape {
    /// Rows, padding included.
    pub rows: usize,
    /// Query heads.
    pub heads: usize,
    /// Key/value heads.
    pub kv_heads: usize,
    /// Elements of a head.
    pub head_dim: usize,
    /// Blocks between the boundaries of splits.
    pub blocks_per_split: usize,
    /// Splits of the longest context.
    pub splits: usize,
    /// Columns of the grid that the splits of a row are dealt to, at most `splits`. Changes no result.
    pub split_columns: usize,
}

impl Launch {
    /// Attention of decode rows; [`Launch::paged_decode_join`] follows where `splits` is above 1.
    pub fn paged_decode(shape: &DecodeShape) -> Self {
        let group = shape.heads / shape.kv_heads;
        // Heads of a group share the keys that a block reads, as far as registers go.
        let (kernel, heads) = match group {
            1 => ("paged_decode_1", 1),
            2 => ("paged_decode_2", 2),
            _ => ("paged_decode_4", 4),
        };
        let warps = 4;
        let shared = warps * heads * (shape.head_dim * 4 + 8) + shape.blocks_per_split * 4;
        let grid = [shape.split_columns, shape.kv_heads * group.div_ceil(heads), shape.rows];
        Self::new(Family::PagedDecode, kernel, grid, 128, shared)
    }

    /// Joins the splits of each row.
    pub fn paged_decode_join(shape: &DecodeShape) -> Self {
        let grid = [shape.heads, shape.rows, 1];
        Self::new(Family::PagedDecode, "paged_decode_join", grid, shape.head_dim, 0)
    }

    /// Attention of prompt rows.
    pub fn paged_prefill(tiles: usize, heads: usize) -> Self {
        Self::new(Family::PagedPrefill, "paged_prefill", [tiles, heads, 1], 128, 0)
    }

    /// Rotation, and keys and values into the pool.
    pub fn kv_append_rope(rows: usize) -> Self {
        Self::new(Family::KvAppendRope, "kv_append_rope", [rows, 1, 1], 256, 0)
    }

    /// Norm by the root mean square.
    pub fn rms_norm(rows: usize) -> Self {
        Self::new(Family::Norm, "rms_norm", [rows, 1, 1], 256, 0)
    }

    /// Norm by mean and variance.
    pub fn layer_norm(rows: usize) -> Self {
        Self::new(Family::Norm, "layer_norm", [rows, 1, 1], 256, 0)
    }

    /// Norm of each head.
    pub fn head_norm(rows: usize, heads: usize) -> Self {
        Self::new(Family::Norm, "head_norm", [rows, heads.div_ceil(4), 1], 128, 0)
    }

    /// `silu(gate) · up`; `width` of the output.
    pub fn silu_mul(rows: usize, width: usize) -> Self {
        Self::elementwise("silu_mul", rows * width)
    }

    /// GELU in its tanh form.
    pub fn gelu_tanh(rows: usize, width: usize) -> Self {
        Self::elementwise("gelu_tanh", rows * width)
    }

    /// GELU exact.
    pub fn gelu_erf(rows: usize, width: usize) -> Self {
        Self::elementwise("gelu_erf", rows * width)
    }

    /// Token and position embedding.
    pub fn embed(rows: usize) -> Self {
        Self::new(Family::Embed, "embed", [rows, 1, 1], 256, 0)
    }

    /// The choice of tokens.
    pub fn sample(rows: usize) -> Self {
        Self::new(Family::Sample, "sample", [rows, 1, 1], 512, 0)
    }

    fn elementwise(kernel: &'static str, elements: usize) -> Self {
        let blocks = (elements / 8).div_ceil(256).clamp(1, ELEMENTWISE_BLOCKS);
        Self::new(Family::Activation, kernel, [blocks, 1, 1], 256, 0)
    }

    fn new(family: Family, kernel: &'static str, grid: [usize; 3], threads: usize, shared: usize) -> Self {
        let grid = grid.map(|blocks| u32::try_from(blocks).expect("a grid within 32 bits"));
        Self { family, kernel, grid, threads: threads as u32, shared_bytes: shared as u32 }
    }
}
