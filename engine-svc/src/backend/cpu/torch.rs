//! Linears through libtorch: for machines that our kernels have no instructions for, and to check ours against.

use firstlight_kernels::linear::{WeightFormat, Write};
use tch::{Kind, Tensor};

/// libtorch's f32 linear differs bitwise where the number of rows is no multiple of this.
const ROW_MULTIPLE: usize = 4;

/// Rows converted to a tensor at a time while loading.
const LOAD_ROWS: usize = 256;

pub struct TorchLinear {
    /// `[outputs, inputs]`.
    weights: Tensor,
    bias: Option<Tensor>,
    inputs: usize,
}

impl TorchLinear {
    pub(super) fn new(
        format: WeightFormat,
        (outputs, inputs): (usize, usize),
        bias: Option<&[f32]>,
        fill: impl Fn(usize, &mut [f32]),
    ) -> Self {
        let kind = kind(format);
        let weights = Tensor::zeros([outputs as i64, inputs as i64], (kind, tch::Device::Cpu));
        for first in (0..outputs).step_by(LOAD_ROWS) {
            let rows = LOAD_ROWS.min(outputs - first);
            let mut values = vec![0.0; rows * inputs];
            for (index, row) in values.chunks_exact_mut(inputs).enumerate() {
                fill(first + index, row);
            }
            let values = Tensor::from_slice(&values).reshape([rows as i64, inputs as i64]);
            weights.narrow(0, first as i64, rows as i64).copy_(&values);
        }
        let bias = bias.map(|bias| Tensor::from_slice(bias).to_kind(kind));
        Self { weights, bias, inputs }
    }

    pub(super) fn bytes(&self) -> usize {
        let bytes = |tensor: &Tensor| tensor.numel() * tensor.kind().elt_size_in_bytes();
        bytes(&self.weights) + self.bias.as_ref().map_or(0, bytes)
    }

    pub(super) fn forward(&self, x: &[f32], y: &mut [f32], write: Write) {
        let rows = x.len() / self.inputs;
        let padded = rows.next_multiple_of(ROW_MULTIPLE);
        let mut operand = Vec::with_capacity(padded * self.inputs);
        operand.extend_from_slice(x);
        operand.resize(padded * self.inputs, 0.0);
        let operand = Tensor::from_slice(&operand)
            .reshape([padded as i64, self.inputs as i64])
            .to_kind(self.weights.kind());
        let product = operand.linear(&self.weights, self.bias.as_ref()).to_kind(Kind::Float);
        match write {
            Write::Set => product.copy_data(y, y.len()),
            Write::Add => {
                let mut sum = vec![0.0; y.len()];
                product.copy_data(&mut sum, y.len());
                y.iter_mut().zip(sum).for_each(|(y, sum)| *y += sum);
            }
        }
    }

    pub(super) fn gather(&self, ids: &[u32], out: &mut [f32]) {
        let ids: Vec<i64> = ids.iter().map(|&id| i64::from(id)).collect();
        let rows = self.weights.index_select(0, &Tensor::from_slice(&ids)).to_kind(Kind::Float);
        rows.copy_data(out, out.len());
    }
}

fn kind(format: WeightFormat) -> Kind {
    match format {
        WeightFormat::F32 => Kind::Float,
        WeightFormat::Bf16 => Kind::BFloat16,
    }
}
