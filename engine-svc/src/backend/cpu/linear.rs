//! A weight matrix, multiplied by our kernels or by libtorch.

use firstlight_gguf::BlockFormat;
use firstlight_kernels::isa::Isa;
use firstlight_kernels::linear::{GatedLinear, PackedLinear, WeightFormat, Write};
use firstlight_kernels::pool::Pool;

use super::torch::TorchLinear;
use crate::backend::options::{CpuOptions, Dtype, LinearKernels, Quantize};
use crate::weights::{Blocks, LayerWeight, Matrix, Weight};

/// How weights are taken in: one decision per matrix at load, none by batch.
pub(super) struct Packing {
    options: CpuOptions,
    pub torch: bool,
}

impl Packing {
    pub(super) fn new(options: &CpuOptions, isa: Isa) -> Self {
        let torch = match options.linear {
            // Quantized weights are what libtorch has nothing for.
            LinearKernels::Auto => isa == Isa::Portable && options.quantize.is_none(),
            LinearKernels::Own => false,
            LinearKernels::Torch => true,
        };
        Self { options: *options, torch }
    }

    /// Takes in matrices of equal inputs, their outputs side by side.
    pub(super) fn load(
        &self,
        pool: &Pool,
        weight: Weight,
        parts: &[Matrix<'_>],
        bias: Option<&[f32]>,
    ) -> Linear {
        let shape = (parts.iter().map(|part| part.outputs).sum(), parts[0].inputs);
        let gated = matches!(weight, Weight::Layer(_, LayerWeight::Gate)).then_some((shape.0 / 2, shape.1));
        if let Some((format, blocks)) = self.kept_blocks(parts) {
            let row_bytes = format.row_bytes(shape.1).unwrap_or_default();
            let fill = |index: usize, row: &mut [u8]| {
                let (part, index) = part_of(parts, index);
                row.copy_from_slice(&blocks[part].bytes[index * row_bytes..][..row_bytes]);
            };
            return match gated {
                Some(shape) => Linear::Gated(GatedLinear::pack_blocks(pool, format, shape, bias, fill)),
                None => Linear::Packed(PackedLinear::pack_blocks(pool, format, shape, bias, fill)),
            };
        }
        let read = |index: usize, row: &mut [f32]| {
            let (part, index) = part_of(parts, index);
            parts[part].read(index, row);
        };
        let format = self.format(weight);
        match (self.torch, gated) {
            (true, _) => Linear::Torch(TorchLinear::new(format, shape, bias, read)),
            (false, Some(shape)) => Linear::Gated(GatedLinear::pack(pool, format, shape, bias, read)),
            (false, None) => Linear::Packed(PackedLinear::pack(pool, format, shape, bias, read)),
        }
    }

    /// The blocks of all parts, where they are multiplied as they stand.
    fn kept_blocks<'a>(&self, parts: &[Matrix<'a>]) -> Option<(WeightFormat, Vec<Blocks<'a>>)> {
        if self.torch || self.options.quantize.is_some() || self.options.dtype != Dtype::Auto {
            return None;
        }
        let blocks: Vec<Blocks<'a>> = parts.iter().map(|part| part.blocks).collect::<Option<_>>()?;
        let format = match blocks[0].format {
            BlockFormat::Q8_0 => WeightFormat::Q8_0,
            BlockFormat::Q4_0 => WeightFormat::Q4_0,
            BlockFormat::Q4_1 => WeightFormat::Q4_1,
            _ => return None,
        };
        blocks.iter().all(|part| part.format == blocks[0].format).then_some((format, blocks))
    }

    fn format(&self, weight: Weight) -> WeightFormat {
        match (self.options.quantize, weight) {
            // Attention scores multiply what is lost in queries and keys: in 8 bits, half of all that int8 costs.
            (None, _)
            | (Some(_), Weight::PositionEmbedding)
            | (Some(Quantize::Int8), Weight::Layer(_, LayerWeight::Query)) => {
                self.options.dtype.weight_format()
            }
            (Some(Quantize::Int4), Weight::Layer(..)) => WeightFormat::INT4,
            (Some(_), _) => WeightFormat::INT8,
        }
    }
}

/// Which part holds an output, and its place there.
fn part_of(parts: &[Matrix<'_>], mut output: usize) -> (usize, usize) {
    for (index, part) in parts.iter().enumerate() {
        if output < part.outputs {
            return (index, output);
        }
        output -= part.outputs;
    }
    panic!("{output} outputs beyond the last part");
}

pub enum Linear {
    Packed(PackedLinear),
    /// Gate and up, which are only ever multiplied together.
    Gated(GatedLinear),
    Torch(TorchLinear),
}

impl Linear {
    pub(super) fn bytes(&self) -> usize {
        match self {
            Self::Packed(linear) => linear.bytes(),
            Self::Gated(linear) => linear.bytes(),
            Self::Torch(linear) => linear.bytes(),
        }
    }

    pub(super) fn format_name(&self) -> &'static str {
        let format = match self {
            Self::Packed(linear) => linear.format(),
            Self::Gated(linear) => linear.format(),
            Self::Torch(linear) => linear.format(),
        };
        match format {
            WeightFormat::F32 => "f32",
            WeightFormat::Bf16 => "bf16",
            WeightFormat::Q8_0 => "q8_0",
            WeightFormat::Q4_0 => "q4_0",
            WeightFormat::Q4_1 => "q4_1",
        }
    }

    pub(super) fn forward(&self, pool: &Pool, x: &[f32], y: &mut [f32], write: Write) {
        match self {
            Self::Packed(linear) => linear.forward(pool, x, y, write),
            Self::Gated(_) => unreachable!("gate and up are multiplied with their activation"),
            Self::Torch(linear) => linear.forward(x, y, write),
        }
    }

    /// The weights of these rows, as an embedding.
    pub(super) fn gather(&self, pool: &Pool, ids: &[u32], out: &mut [f32]) {
        match self {
            Self::Packed(linear) => linear.gather(pool, ids, out),
            Self::Gated(_) => unreachable!("gate and up are no embedding"),
            Self::Torch(linear) => linear.gather(ids, out),
        }
    }
}
