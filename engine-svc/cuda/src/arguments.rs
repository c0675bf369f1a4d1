//! The structs that kernels take by value: field for field those of `kernels/*.cu`, where shapes are said.
//!
//! The sizes are asserted on both sides, and the emulated tests read every field through both.

use std::marker::PhantomData;

/// An address on the device, of elements of `T`.
#[repr(transparent)]
pub struct DevicePtr<T> {
    address: u64,
    element: PhantomData<T>,
}

impl<T> DevicePtr<T> {
    /// No address: what an argument holds that is not used.
    pub const NULL: Self = Self::at(0);

    /// The element at `address`.
    pub const fn at(address: u64) -> Self {
        Self { address, element: PhantomData }
    }

    /// The element `count` further on.
    pub const fn offset(self, count: usize) -> Self {
        Self::at(self.address + (count * size_of::<T>()) as u64)
    }
}

impl<T> Clone for DevicePtr<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for DevicePtr<T> {}

impl<T> std::fmt::Debug for DevicePtr<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:#x}", self.address)
    }
}

/// Marks what kernels may take: `#[repr(C)]`, of the size that the device's twin has.
pub trait Arguments: Copy {}

macro_rules! arguments {
    ($($name:ident: $bytes:literal),* $(,)?) => {
        $(
            const _: () = assert!(size_of::<$name>() == $bytes);
            impl Arguments for $name {}
        )*
    };
}

arguments! {
    PagedDecode: 104,
    PagedPrefill: 80,
    KvAppendRope: 72,
    Norm: 56,
    HeadNorm: 40,
    Activation: 32,
    Embed: 64,
    Sample: 32,
}

const _: () =
    assert!(size_of::<Kv>() == 24 && size_of::<PrefillTile>() == 16 && size_of::<RowSampling>() == 32);

/// A layer of the KV pool.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Kv {
    /// This layer's part of block 0.
    pub layer: DevicePtr<u16>,
    /// Elements from a block to the next.
    pub block_stride: i64,
    /// Key/value heads.
    pub kv_heads: i32,
    /// 0.
    pub reserved: i32,
}

/// Of `paged_decode_*` and `paged_decode_join`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct PagedDecode {
    /// `[rows][heads][D]`.
    pub out: DevicePtr<u16>,
    /// Rows of `[heads][D]`.
    pub queries: DevicePtr<u16>,
    /// The layer.
    pub kv: Kv,
    /// `[rows][table_stride]`.
    pub block_table: DevicePtr<i32>,
    /// `[rows]`: keys to attend to; 0 for a padding row.
    pub context: DevicePtr<i32>,
    /// `[rows][heads][splits][D]`.
    pub partial_out: DevicePtr<f32>,
    /// `[rows][heads][splits]`.
    pub partial_softmax: DevicePtr<[f32; 2]>,
    /// Elements between rows of `queries`.
    pub query_stride: i64,
    /// Softmax scale · log₂ e.
    pub scale_log2: f32,
    /// Query heads.
    pub heads: i32,
    /// Entries of a row of the block table.
    pub table_stride: i32,
    /// Blocks between the fixed boundaries at which keys are split.
    pub blocks_per_split: i32,
    /// Splits that the partial buffers hold for each row.
    pub splits: i32,
    /// 0.
    pub reserved: i32,
}

/// Up to 64 neighbouring rows of one sequence.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PrefillTile {
    /// Row of queries and output.
    pub first_row: i32,
    /// How many; 0: a padding tile.
    pub rows: i32,
    /// Position of the first in its sequence.
    pub first_position: i32,
    /// Row of the block table.
    pub sequence: i32,
}

/// Of `paged_prefill`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct PagedPrefill {
    /// `[rows][heads][D]`.
    pub out: DevicePtr<u16>,
    /// Rows of `[heads][D]`.
    pub queries: DevicePtr<u16>,
    /// The layer.
    pub kv: Kv,
    /// `[sequences][table_stride]`.
    pub block_table: DevicePtr<i32>,
    /// One per block of the grid.
    pub tiles: DevicePtr<PrefillTile>,
    /// Elements between rows of `queries`.
    pub query_stride: i64,
    /// Softmax scale · log₂ e.
    pub scale_log2: f32,
    /// Query heads.
    pub heads: i32,
    /// Entries of a row of the block table.
    pub table_stride: i32,
    /// 0.
    pub reserved: i32,
}

/// Which two elements of a head are rotated together.
#[repr(i32)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pairing {
    /// No rotation.
    None = 0,
    /// Element i with i + pairs.
    Halves = 1,
    /// Element 2i with 2i + 1.
    Interleaved = 2,
}

/// Of `kv_append_rope`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct KvAppendRope {
    /// `[rows][queries, keys, values]`.
    pub qkv: DevicePtr<u16>,
    /// The layer.
    pub kv: Kv,
    /// `[rows]`: block · 16 + place in the block.
    pub slots: DevicePtr<i32>,
    /// `[rows]`.
    pub positions: DevicePtr<i32>,
    /// `[positions][pairs cosines, pairs sines]`.
    pub angles: DevicePtr<f32>,
    /// Query heads.
    pub heads: i32,
    /// Rotated pairs of a head, even.
    pub pairs: i32,
    /// How they are paired.
    pub pairing: Pairing,
    /// 0.
    pub reserved: i32,
}

/// Of `rms_norm` and `layer_norm`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Norm {
    /// `[rows][width]`: the residual stream.
    pub x: DevicePtr<f32>,
    /// `[rows][width]`, added to `x` first; null: nothing.
    pub delta: DevicePtr<u16>,
    /// `[width]`.
    pub scale: DevicePtr<f32>,
    /// `[width]`; null: none.
    pub bias: DevicePtr<f32>,
    /// The row of `x` that each row of `out` is of; null: the same.
    pub rows: DevicePtr<i32>,
    /// `[rows][width]`.
    pub out: DevicePtr<u16>,
    /// A multiple of 4.
    pub width: i32,
    /// Added inside the square root.
    pub epsilon: f32,
}

/// Of `head_norm`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct HeadNorm {
    /// Normalized in place.
    pub rows: DevicePtr<u16>,
    /// `[dim]`.
    pub scale: DevicePtr<f32>,
    /// Elements between rows.
    pub stride: i64,
    /// Column of the first head, even.
    pub first: i32,
    /// Heads.
    pub heads: i32,
    /// Elements of a head, even.
    pub dim: i32,
    /// Added inside the square root.
    pub epsilon: f32,
}

/// Of `silu_mul`, `gelu_tanh` and `gelu_erf`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Activation {
    /// `silu_mul`: `[rows][gate, up]`; else `[rows][width]`.
    pub input: DevicePtr<u16>,
    /// `[rows][width]`; except for `silu_mul` it may be `input`.
    pub out: DevicePtr<u16>,
    /// Rows.
    pub rows: i64,
    /// A multiple of 8.
    pub width: i32,
    /// 0.
    pub reserved: i32,
}

/// Of `embed`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Embed {
    /// `[rows][width]`: the residual stream.
    pub x: DevicePtr<f32>,
    /// `[vocabulary][width]`.
    pub token_table: DevicePtr<u16>,
    /// `[context][width]`; null where positions enter by rotation.
    pub position_table: DevicePtr<u16>,
    /// `[rows]`.
    pub tokens: DevicePtr<i32>,
    /// `[rows]`: the row of `sampled` that has the token; below 0: it is in `tokens`.
    pub sources: DevicePtr<i32>,
    /// Tokens of the forward before.
    pub sampled: DevicePtr<i32>,
    /// `[rows]`.
    pub positions: DevicePtr<i32>,
    /// Even.
    pub width: i32,
    /// 0.
    pub reserved: i32,
}

/// How to choose the token of one row.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct RowSampling {
    /// 0: the most likely token, always.
    pub temperature: f32,
    /// Above 0, at most 1.
    pub top_p: f32,
    /// 0 to 1.
    pub min_p: f32,
    /// 0: all.
    pub top_k: u32,
    /// Of the noise.
    pub seed: u64,
    /// Absolute, of the token to be chosen.
    pub position: u32,
    /// 0.
    pub reserved: u32,
}

impl RowSampling {
    /// As it lies in memory, 32 bits at a time.
    pub fn words(&self) -> [u32; 8] {
        let seed = self.seed;
        [
            self.temperature.to_bits(),
            self.top_p.to_bits(),
            self.min_p.to_bits(),
            self.top_k,
            seed as u32,
            (seed >> 32) as u32,
            self.position,
            self.reserved,
        ]
    }
}

/// Of `sample`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Sample {
    /// `[rows]`, `stride` apart.
    pub logits: DevicePtr<f32>,
    /// `[rows]`.
    pub sampling: DevicePtr<RowSampling>,
    /// `[rows]`.
    pub tokens: DevicePtr<i32>,
    /// At most 2²⁴.
    pub vocabulary: i32,
    /// At least the vocabulary; what is beyond is not read.
    pub stride: i32,
}
