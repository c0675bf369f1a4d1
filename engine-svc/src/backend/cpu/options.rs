//! How weights are held and how much memory the KV pool takes.

use std::fmt;
use std::str::FromStr;

use firstlight_kernels::kv::KvType;
use firstlight_kernels::linear::WeightFormat;

/// Choices made when a model is loaded.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CpuOptions {
    /// Type of weights, keys and values.
    pub dtype: Dtype,
    /// What multiplies.
    pub linear: LinearKernels,
    /// Threads that execute a forward, the caller's included.
    pub threads: usize,
    /// Size of the KV pool.
    pub kv: KvSize,
    /// A context shorter than the model's.
    pub context_length: Option<usize>,
}

/// Type of weights, keys and values; sums are always 32-bit floats.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Dtype {
    /// bfloat16.
    #[default]
    Bf16,
    /// 32-bit floats.
    F32,
}

impl Dtype {
    pub(super) fn weight_format(self) -> WeightFormat {
        match self {
            Self::Bf16 => WeightFormat::Bf16,
            Self::F32 => WeightFormat::F32,
        }
    }

    pub(super) fn kv_type(self) -> KvType {
        match self {
            Self::Bf16 => KvType::Bf16,
            Self::F32 => KvType::F32,
        }
    }
}

impl fmt::Display for Dtype {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Bf16 => "bf16",
            Self::F32 => "f32",
        })
    }
}

impl FromStr for Dtype {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "bf16" => Ok(Self::Bf16),
            "f32" => Ok(Self::F32),
            _ => Err("one of bf16, f32".to_owned()),
        }
    }
}

/// What multiplies activations with weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LinearKernels {
    /// Our kernels where the machine has the instructions they are written for, else libtorch.
    #[default]
    Auto,
    /// Our kernels, portable ones if need be.
    Own,
    /// libtorch.
    Torch,
}

impl FromStr for LinearKernels {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "auto" => Ok(Self::Auto),
            "own" => Ok(Self::Own),
            "torch" => Ok(Self::Torch),
            _ => Err("one of auto, own, torch".to_owned()),
        }
    }
}

/// Size of the KV pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KvSize {
    /// So many blocks.
    Blocks(usize),
    /// As many blocks as fit into so many bytes, at least one.
    Bytes(u64),
}

impl KvSize {
    pub(super) fn blocks(self, block_bytes: usize) -> usize {
        match self {
            Self::Blocks(blocks) => blocks,
            Self::Bytes(bytes) => ((bytes / block_bytes as u64) as usize).max(1),
        }
    }
}
