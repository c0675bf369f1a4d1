//! How a model is loaded onto a device.

use clap::ValueEnum;
use firstlight_cuda::source::Number;
use firstlight_kernels::kv::KvType;
use firstlight_kernels::linear::WeightFormat;

/// Choices made when a model is loaded for this machine's cores.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CpuOptions {
    /// Type of weights, keys and values.
    pub dtype: Dtype,
    /// Weights stored smaller than that.
    pub quantize: Option<Quantize>,
    /// What multiplies.
    pub linear: LinearKernels,
    /// Threads that execute a forward, the caller's included; at least 1.
    pub threads: usize,
    /// Blocks of the KV pool; at least 1.
    pub kv_blocks: usize,
    /// A context shorter than the model's.
    pub context_length: Option<usize>,
}

/// Choices made when a model is loaded onto a GPU.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CudaOptions {
    /// Type of weights, keys and values.
    pub number: Number,
    /// Blocks of the KV pool; by default as many as fit.
    pub kv_blocks: Option<usize>,
    /// Part of the GPU's memory that the engine may fill, 0 to 1.
    pub kv_memory_fraction: f64,
    /// A context shorter than the model's.
    pub context_length: Option<usize>,
    /// Rows of the largest decode forward that is captured; at least 1.
    pub decode_rows: usize,
    /// Whether decode forwards are captured as graphs.
    pub graphs: bool,
    /// Whether a request's tokens may not depend on its neighbours.
    pub batch_invariant: bool,
    /// Whether forwards are named for a profiler.
    pub nvtx: bool,
}

/// Type of weights, keys and values; sums are always 32-bit floats.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum Dtype {
    /// Weights as the file has them where a kernel multiplies them so (q4_0, q4_1, q8_0), else bf16.
    #[default]
    Auto,
    /// 16-bit brain floats.
    Bf16,
    /// 16-bit floats with more digits and less range; only with --backend cuda.
    F16,
    /// 32-bit floats; only with --backend cpu.
    F32,
}

impl Dtype {
    /// How linears hold weights that are not quantized.
    pub fn weight_format(self) -> WeightFormat {
        match self {
            Self::Auto | Self::Bf16 | Self::F16 => WeightFormat::Bf16,
            Self::F32 => WeightFormat::F32,
        }
    }

    /// How the KV pool holds keys and values.
    pub fn kv_type(self) -> KvType {
        match self {
            Self::Auto | Self::Bf16 | Self::F16 => KvType::Bf16,
            Self::F32 => KvType::F32,
        }
    }
}

/// Weights stored smaller than the file has them; activations too are then multiplied as 8-bit integers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Quantize {
    /// 8 bits, a scale per 32 weights; queries, keys and values stay as --dtype says.
    Int8,
    /// 4 bits, a scale and a minimum per 32 weights; embedding and output keep 8 bits.
    Int4,
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
