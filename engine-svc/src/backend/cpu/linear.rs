//! A weight matrix, multiplied by our kernels or by libtorch.

use firstlight_kernels::linear::{PackedLinear, WeightFormat, Write};
use firstlight_kernels::pool::Pool;

use super::torch::TorchLinear;
use crate::weights::Matrix;

pub enum Linear {
    Packed(PackedLinear),
    Torch(TorchLinear),
}

impl Linear {
    /// Takes in matrices of equal inputs, their outputs side by side.
    pub(super) fn load(
        pool: &Pool,
        format: WeightFormat,
        torch: bool,
        parts: &[Matrix<'_>],
        bias: Option<&[f32]>,
    ) -> Self {
        let (outputs, inputs) = (parts.iter().map(|part| part.outputs).sum(), parts[0].inputs);
        let read = |index: usize, row: &mut [f32]| {
            let mut index = index;
            for part in parts {
                if index < part.outputs {
                    return part.read(index, row);
                }
                index -= part.outputs;
            }
        };
        match torch {
            true => Self::Torch(TorchLinear::new(format, (outputs, inputs), bias, read)),
            false => Self::Packed(PackedLinear::pack(pool, format, (outputs, inputs), bias, read)),
        }
    }

    pub(super) fn bytes(&self) -> usize {
        match self {
            Self::Packed(linear) => linear.bytes(),
            Self::Torch(linear) => linear.bytes(),
        }
    }

    pub(super) fn forward(&self, pool: &Pool, x: &[f32], y: &mut [f32], write: Write) {
        match self {
            Self::Packed(linear) => linear.forward(pool, x, y, write),
            Self::Torch(linear) => linear.forward(x, y, write),
        }
    }

    /// The weights of these rows, as an embedding.
    pub(super) fn gather(&self, pool: &Pool, ids: &[u32], out: &mut [f32]) {
        match self {
            Self::Packed(linear) => linear.gather(pool, ids, out),
            Self::Torch(linear) => linear.gather(ids, out),
        }
    }
}
