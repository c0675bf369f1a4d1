//! A decoder-only transformer: GPT-2 and the Llama family in the operations of a device.

use firstlight_kernels::rows::Heads;

use super::ops::Ops;
use crate::weights::config::{Mlp, ModelConfig};

/// A loaded model and the buffers of its forward.
pub struct Decoder<D: Ops> {
    pub(super) config: ModelConfig,
    pub(super) token_embedding: D::Linear,
    pub(super) position_embedding: Option<D::Linear>,
    pub(super) rope: Option<D::Rope>,
    pub(super) layers: Vec<Layer<D>>,
    pub(super) output_norm: D::Norm,
    /// None where the token embedding serves.
    pub(super) output: Option<D::Linear>,
    pub(super) buffers: Buffers<D>,
}

pub(super) struct Layer<D: Ops> {
    pub attention_norm: D::Norm,
    /// Query, key and value side by side.
    pub qkv: D::Linear,
    pub query_norm: Option<D::Norm>,
    pub key_norm: Option<D::Norm>,
    pub attention_output: D::Linear,
    pub mlp_norm: D::Norm,
    /// In gated blocks gate and up side by side.
    pub up: D::Linear,
    pub down: D::Linear,
}

pub(super) struct Buffers<D: Ops> {
    /// The residual stream.
    pub x: D::Buffer,
    pub normed: D::Buffer,
    pub qkv: D::Buffer,
    pub attended: D::Buffer,
    pub up: D::Buffer,
    pub activated: D::Buffer,
    pub selected: D::Buffer,
    pub logits: D::Buffer,
}

impl<D: Ops> Decoder<D> {
    /// What kind of model it is.
    pub fn config(&self) -> &ModelConfig {
        &self.config
    }

    /// One forward. Returns the logits of the rows that the step wants them of, if it asks for more than the largest.
    pub fn forward(&mut self, ops: &mut D, step: &D::Step<'_>) -> &D::Buffer {
        let Self { config, rope, layers, buffers: b, .. } = self;
        let positions = self.position_embedding.as_ref();
        ops.embed(&self.token_embedding, positions, step, &mut b.normed, &mut b.x);
        for (index, layer) in layers.iter().enumerate() {
            layer.attention(ops, index, config, rope.as_ref(), step, b);
            layer.mlp(ops, config.mlp, b);
        }
        ops.normalize_selected(&self.output_norm, step, &mut b.x, &mut b.normed, &mut b.selected);
        let output = self.output.as_ref().unwrap_or(&self.token_embedding);
        ops.logits(output, &b.selected, step, &mut b.logits);
        &b.logits
    }
}

impl<D: Ops> Layer<D> {
    fn attention(
        &self,
        ops: &mut D,
        index: usize,
        config: &ModelConfig,
        rope: Option<&D::Rope>,
        step: &D::Step<'_>,
        b: &mut Buffers<D>,
    ) {
        let (heads, kv_heads, dim) = (config.heads, config.kv_heads, config.head_dim);
        let stride = config.query_width() + 2 * config.kv_width();
        let heads_from = |first, count| Heads { stride, first: first * dim, count, dim };
        ops.normalize_multiply(&self.attention_norm, &self.qkv, &mut b.x, &mut b.normed, &mut b.qkv);
        if let Some(norm) = &self.query_norm {
            ops.normalize_heads(norm, heads_from(0, heads), &mut b.qkv);
        }
        if let Some(norm) = &self.key_norm {
            ops.normalize_heads(norm, heads_from(heads, kv_heads), &mut b.qkv);
        }
        ops.attend(index, rope, step, &mut b.qkv, &mut b.attended);
        ops.multiply_add(&self.attention_output, &b.attended, &mut b.x);
    }

    fn mlp(&self, ops: &mut D, mlp: Mlp, b: &mut Buffers<D>) {
        match mlp {
            Mlp::GatedSilu => {
                let between = [&mut b.normed, &mut b.up, &mut b.activated];
                return ops.feed_gated(&self.mlp_norm, (&self.up, &self.down), &mut b.x, between);
            }
            Mlp::GeluTanh => {
                ops.normalize(&self.mlp_norm, &mut b.x, &mut b.normed);
                ops.multiply_gelu_tanh(&self.up, &b.normed, &mut b.up);
            }
            Mlp::GeluErf => {
                ops.normalize_multiply(&self.mlp_norm, &self.up, &mut b.x, &mut b.normed, &mut b.up);
                ops.gelu_erf(&mut b.up);
            }
        }
        ops.multiply_add(&self.down, &b.up, &mut b.x);
    }
}
