//! The formats of tensor data, and their values as `f32`.
//!
//! A format stores a row in blocks of a fixed number of values and bytes. Formats and their ids are ggml's
//! (`ggml-common.h`); all fields are little-endian.

mod k;
mod legacy;
mod plain;

/// How the values of a tensor are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum BlockFormat {
    /// IEEE single precision.
    F32,
    /// IEEE half precision.
    F16,
    /// The upper half of a single.
    Bf16,
    /// 32 values `d·(q − 8)`, `q` of 4 bits.
    Q4_0,
    /// 32 values `d·q + m`, `q` of 4 bits.
    Q4_1,
    /// 32 values `d·q`, `q` of 8 bits.
    Q8_0,
    /// 256 values in 8 groups `(d·s)·q − (dmin·m)`, `q` of 4 bits, `s` and `m` of 6.
    Q4K,
    /// As [`BlockFormat::Q4K`], `q` of 5 bits.
    Q5K,
    /// 256 values in 16 groups `(d·s)·(q − 32)`, `q` of 6 bits, `s` of 8.
    Q6K,
}

impl BlockFormat {
    /// Every format.
    pub const ALL: [Self; 9] = [
        Self::F32,
        Self::F16,
        Self::Bf16,
        Self::Q4_0,
        Self::Q4_1,
        Self::Q8_0,
        Self::Q4K,
        Self::Q5K,
        Self::Q6K,
    ];

    /// The format of a ggml type id.
    pub fn from_ggml(id: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|format| format.ggml_id() == id)
    }

    /// The ggml type id.
    pub fn ggml_id(self) -> u32 {
        match self {
            Self::F32 => 0,
            Self::F16 => 1,
            Self::Q4_0 => 2,
            Self::Q4_1 => 3,
            Self::Q8_0 => 8,
            Self::Q4K => 12,
            Self::Q5K => 13,
            Self::Q6K => 14,
            Self::Bf16 => 30,
        }
    }

    /// The name people use, in lower case: `q4_1`.
    pub fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::F16 => "f16",
            Self::Bf16 => "bf16",
            Self::Q4_0 => "q4_0",
            Self::Q4_1 => "q4_1",
            Self::Q8_0 => "q8_0",
            Self::Q4K => "q4_k",
            Self::Q5K => "q5_k",
            Self::Q6K => "q6_k",
        }
    }

    /// Values per block.
    pub fn block_values(self) -> usize {
        match self {
            Self::F32 | Self::F16 | Self::Bf16 => 1,
            Self::Q4_0 | Self::Q4_1 | Self::Q8_0 => legacy::VALUES,
            Self::Q4K | Self::Q5K | Self::Q6K => k::VALUES,
        }
    }

    /// Bytes per block.
    pub fn block_bytes(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::F16 | Self::Bf16 => 2,
            Self::Q4_0 => legacy::Q4_0_BYTES,
            Self::Q4_1 => legacy::Q4_1_BYTES,
            Self::Q8_0 => legacy::Q8_0_BYTES,
            Self::Q4K => k::Q4_BYTES,
            Self::Q5K => k::Q5_BYTES,
            Self::Q6K => k::Q6_BYTES,
        }
    }

    /// The values of whole blocks.
    ///
    /// # Panics
    /// When `blocks` and `values` are not the same whole number of blocks.
    pub fn dequantize(self, blocks: &[u8], values: &mut [f32]) {
        let whole = blocks.len() / self.block_bytes();
        assert!(
            blocks.len() == whole * self.block_bytes() && values.len() == whole * self.block_values(),
            "{} bytes of {} and {} values",
            blocks.len(),
            self.name(),
            values.len(),
        );
        match self {
            Self::F32 => plain::f32(blocks, values),
            Self::F16 => plain::f16(blocks, values),
            Self::Bf16 => plain::bf16(blocks, values),
            Self::Q4_0 => legacy::q4_0(blocks, values),
            Self::Q4_1 => legacy::q4_1(blocks, values),
            Self::Q8_0 => legacy::q8_0(blocks, values),
            Self::Q4K => k::q4(blocks, values),
            Self::Q5K => k::q5(blocks, values),
            Self::Q6K => k::q6(blocks, values),
        }
    }
}

/// A half-precision field at the start of `bytes`.
fn half_at(bytes: &[u8], at: usize) -> f32 {
    half::f16::from_le_bytes([bytes[at], bytes[at + 1]]).to_f32()
}
