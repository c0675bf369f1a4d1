//! Linears through libtorch: for machines that our kernels have no instructions for, and to check ours against.

use firstlight_kernels::linear::{WeightFormat, Write};
use tch::{Kind, Tensor};

/// Rows multiplied at a time, always: libtorch chooses its algorithm by the number of rows, and a row's result must
/// not depend on how many others there are.
const ROWS: usize = 16;

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

    pub(super) fn format(&self) -> WeightFormat {
        match self.weights.kind() {
            Kind::Float => WeightFormat::F32,
            _ => WeightFormat::Bf16,
        }
    }

    pub(super) fn bytes(&self) -> usize {
        let bytes = |tensor: &Tensor| tensor.numel() * tensor.kind().elt_size_in_bytes();
        bytes(&self.weights) + self.bias.as_ref().map_or(0, bytes)
    }

    pub(super) fn forward(&self, x: &[f32], y: &mut [f32], write: Write) {
        let outputs = y.len() / (x.len() / self.inputs).max(1);
        let mut operand = vec![0.0; ROWS * self.inputs];
        let mut product = vec![0.0; ROWS * outputs];
        for (x, y) in x.chunks(ROWS * self.inputs).zip(y.chunks_mut(ROWS * outputs.max(1))) {
            operand[..x.len()].copy_from_slice(x);
            operand[x.len()..].fill(0.0);
            self.multiply(&operand, &mut product);
            match write {
                Write::Set => y.copy_from_slice(&product[..y.len()]),
                Write::Add => y.iter_mut().zip(&product).for_each(|(y, product)| *y += product),
            }
        }
    }

    fn multiply(&self, x: &[f32], y: &mut [f32]) {
        let x = Tensor::from_slice(x).reshape([ROWS as i64, self.inputs as i64]);
        let product = x.to_kind(self.weights.kind()).linear(&self.weights, self.bias.as_ref());
        product.to_kind(Kind::Float).copy_data(y, y.len());
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
        _ => Kind::BFloat16,
    }
}
