//! How a model is loaded onto a device.

use std::fmt;

use clap::ValueEnum;
use firstlight_kernels::kv::KvType;
use firstlight_kernels::linear::WeightFormat;

/// Choices made when a model is loaded for this machine's cores.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CpuOptions {
    /// Type of weights, keys and values.
    pub dtype: Dtype,
    /// What multiplies.
    pub linear: LinearKernels,
    /// Threads that execute a forward, the caller's included; at least 1.
    pub threads: usize,
    /// Blocks of the KV pool; at least 1.
    pub kv_blocks: usize,
    /// A context shorter than the model's.
    pub context_length: Option<usize>,
}

/// Type of weights, keys and values; sums are always 32-bit floats.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum Dtype {
    /// 16-bit brain floats, accumulated in 32 bits.
    #[default]
    Bf16,
    /// 32-bit floats.
    F32,
}

impl Dtype {
    /// How linears hold their weights.
    pub fn weight_format(self) -> WeightFormat {
        match self {
            Self::Bf16 => WeightFormat::Bf16,
            Self::F32 => WeightFormat::F32,
        }
    }

    /// How the KV pool holds keys and values.
    pub fn kv_type(self) -> KvType {
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

/// What multiplies activations with weights.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum LinearKernels {
    /// Our kernels where the machine has the instructions they are written for, else libtorch.
    #[default]
    Auto,
    /// Our kernels, portable ones if need be.
    Own,
    /// libtorch.
    Torch,
}
