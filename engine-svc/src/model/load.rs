//! Weights from a source onto a device, matrix by matrix.

use super::decoder::{Buffers, Decoder, Layer};
use super::ops::{Ops, Role};
use crate::weights::config::{Mlp, ModelConfig, Norm, Positions};
use crate::weights::{LayerWeight, LoadError, Matrix, Weight, WeightSource};

impl<D: Ops> Decoder<D> {
    /// Loads every weight that the source's configuration calls for.
    ///
    /// # Errors
    /// Names the weight that is missing or of another shape than the configuration says.
    pub fn load(ops: &mut D, source: &dyn WeightSource) -> Result<Self, LoadError> {
        let config = source.config().clone();
        let mut loader = Loader { ops, source, config: &config };
        let (vocab, hidden, context) = (config.vocab_size, config.hidden, config.context_length);
        let token_embedding = loader.linear(&[(Weight::TokenEmbedding, vocab)], hidden)?;
        let (position_embedding, rope) = match &config.positions {
            Positions::Learned => {
                (Some(loader.linear(&[(Weight::PositionEmbedding, context)], hidden)?), None)
            }
            Positions::Rotary { pairing, inverse_frequencies } => {
                (None, Some(loader.ops.rope(*pairing, inverse_frequencies, context)))
            }
        };
        let layers = (0..config.layers).map(|index| loader.layer(index)).collect::<Result<Vec<_>, _>>()?;
        let output_norm = loader.norm(Weight::OutputNorm, hidden)?;
        let output = match config.tied_output {
            true => None,
            false => Some(loader.linear(&[(Weight::Output, vocab)], hidden)?),
        };
        let buffers = buffers(ops, &config);
        Ok(Self { config, token_embedding, position_embedding, rope, layers, output_norm, output, buffers })
    }
}

struct Loader<'a, D> {
    ops: &'a mut D,
    source: &'a dyn WeightSource,
    config: &'a ModelConfig,
}

impl<D: Ops> Loader<'_, D> {
    fn layer(&mut self, index: usize) -> Result<Layer<D>, LoadError> {
        let of = |weight| Weight::Layer(index, weight);
        let c = self.config;
        let (q, kv) = (c.query_width(), c.kv_width());
        let qkv = [(of(LayerWeight::Query), q), (of(LayerWeight::Key), kv), (of(LayerWeight::Value), kv)];
        let gate_up = [(of(LayerWeight::Gate), c.mlp_width), (of(LayerWeight::Up), c.mlp_width)];
        let up = if c.mlp == Mlp::GatedSilu { &gate_up[..] } else { &gate_up[1..] };
        let (query_norm, key_norm) = match c.query_key_norm {
            true => (
                Some(self.norm(of(LayerWeight::QueryNorm), c.head_dim)?),
                Some(self.norm(of(LayerWeight::KeyNorm), c.head_dim)?),
            ),
            false => (None, None),
        };
        Ok(Layer {
            attention_norm: self.norm(of(LayerWeight::AttentionNorm), c.hidden)?,
            qkv: self.linear(&qkv, c.hidden)?,
            query_norm,
            key_norm,
            attention_output: self.linear(&[(of(LayerWeight::AttentionOutput), c.hidden)], q)?,
            mlp_norm: self.norm(of(LayerWeight::MlpNorm), c.hidden)?,
            up: self.linear(up, c.hidden)?,
            down: self.linear(&[(of(LayerWeight::Down), c.hidden)], c.mlp_width)?,
        })
    }

    /// Matrices with this many outputs each, side by side.
    fn linear(&mut self, parts: &[(Weight, usize)], inputs: usize) -> Result<D::Linear, LoadError> {
        let mut matrices = Vec::new();
        let mut bias = Vec::new();
        for &(weight, outputs) in parts {
            let matrix = self.source.matrix(weight)?;
            self.expect(weight, &[matrix.outputs, matrix.inputs], &[outputs, inputs])?;
            matrices.push(matrix);
            if let Some(part) = self.bias(weight, outputs)? {
                bias.extend(part);
            }
        }
        let total: usize = parts.iter().map(|(_, outputs)| outputs).sum();
        let bias = match bias.len() {
            0 => None,
            len if len == total => Some(&bias[..]),
            len => return Err(self.wrong_shape(parts[0].0, &[len], &[total])),
        };
        let linear = self.ops.linear(parts[0].0, &matrices, bias);
        drop::<Vec<Matrix<'_>>>(matrices);
        self.source.release_pages();
        Ok(linear)
    }

    fn norm(&mut self, weight: Weight, width: usize) -> Result<D::Norm, LoadError> {
        let scale = self.source.norm(weight)?;
        self.expect(weight, &[scale.len()], &[width])?;
        let bias = match self.config.norm {
            Norm::Layer => self.bias(weight, width)?,
            Norm::Rms => None,
        };
        Ok(self.ops.norm(self.config.norm, scale, bias, self.config.norm_eps))
    }

    fn bias(&self, weight: Weight, width: usize) -> Result<Option<Vec<f32>>, LoadError> {
        if matches!(weight, Weight::TokenEmbedding | Weight::PositionEmbedding | Weight::Output) {
            return Ok(None);
        }
        let bias = self.source.bias(weight)?;
        if let Some(bias) = &bias {
            self.expect(weight, &[bias.len()], &[width])?;
        }
        Ok(bias)
    }

    fn expect(&self, weight: Weight, got: &[usize], want: &[usize]) -> Result<(), LoadError> {
        if got == want { Ok(()) } else { Err(self.wrong_shape(weight, got, want)) }
    }

    fn wrong_shape(&self, weight: Weight, got: &[usize], want: &[usize]) -> LoadError {
        let (got, want) = (got.to_vec(), want.to_vec());
        LoadError::Shape { origin: self.source.origin(), weight, got, want }
    }
}

fn buffers<D: Ops>(ops: &mut D, c: &ModelConfig) -> Buffers<D> {
    let up = if c.mlp == Mlp::GatedSilu { 2 * c.mlp_width } else { c.mlp_width };
    Buffers {
        x: ops.buffer(Role::Residual, c.hidden),
        normed: ops.buffer(Role::Hidden, c.hidden),
        qkv: ops.buffer(Role::Hidden, c.query_width() + 2 * c.kv_width()),
        attended: ops.buffer(Role::Hidden, c.query_width()),
        up: ops.buffer(Role::Hidden, up),
        activated: ops.buffer(Role::Hidden, c.mlp_width),
        selected: ops.buffer(Role::Selected, c.hidden),
        logits: ops.buffer(Role::Logits, c.vocab_size),
    }
}
