//! Tensor names of GGUF files (`gguf-py/gguf/constants.py`).

use std::ops::Range;

use crate::weights::config::ModelConfig;
use crate::weights::weight::{LayerWeight, Weight};

/// Where a weight lies: a tensor's name without `.weight`, and which of its rows (none: all).
pub(super) struct Place {
    pub name: String,
    pub rows: Option<Range<usize>>,
}

impl Place {
    pub(super) fn of(weight: Weight, config: &ModelConfig) -> Self {
        let whole = |name: &str| Self { name: name.to_owned(), rows: None };
        let (layer, weight) = match weight {
            Weight::TokenEmbedding => return whole("token_embd"),
            Weight::PositionEmbedding => return whole("position_embd"),
            Weight::OutputNorm => return whole("output_norm"),
            Weight::Output => return whole("output"),
            Weight::Layer(layer, weight) => (layer, weight),
        };
        let of_layer = |name: &str| whole(&format!("blk.{layer}.{name}"));
        let fused = config.architecture == "gpt2";
        let (q, kv) = (config.query_width(), config.kv_width());
        let part = |rows| Self { rows: Some(rows), ..of_layer("attn_qkv") };
        match weight {
            LayerWeight::Query if fused => part(0..q),
            LayerWeight::Key if fused => part(q..q + kv),
            LayerWeight::Value if fused => part(q + kv..q + 2 * kv),
            LayerWeight::Query => of_layer("attn_q"),
            LayerWeight::Key => of_layer("attn_k"),
            LayerWeight::Value => of_layer("attn_v"),
            LayerWeight::QueryNorm => of_layer("attn_q_norm"),
            LayerWeight::KeyNorm => of_layer("attn_k_norm"),
            LayerWeight::AttentionNorm => of_layer("attn_norm"),
            LayerWeight::AttentionOutput => of_layer("attn_output"),
            LayerWeight::MlpNorm => of_layer("ffn_norm"),
            LayerWeight::Gate => of_layer("ffn_gate"),
            LayerWeight::Up => of_layer("ffn_up"),
            LayerWeight::Down => of_layer("ffn_down"),
        }
    }
}
