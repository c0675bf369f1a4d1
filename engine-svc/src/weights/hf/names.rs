//! Tensor names of Hugging Face checkpoints (`transformers`, `modeling_llama.py` and `modeling_gpt2.py`).

use std::ops::Range;

use crate::weights::config::{ModelConfig, Positions};
use crate::weights::weight::{LayerWeight, Weight};

/// What stands before every name: checkpoints of the bare model have nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Prefix {
    Bare,
    /// `model.` or `transformer.`.
    Wrapped,
}

impl Prefix {
    pub(super) fn found_in(contains: impl Fn(&str) -> bool) -> Self {
        let bare = contains("embed_tokens.weight") || contains("wte.weight");
        if bare { Self::Bare } else { Self::Wrapped }
    }
}

/// Where a weight lies.
pub(super) struct Place {
    /// The tensor's name without `.weight`.
    pub name: String,
    /// Which of the tensor's outputs (none: all).
    pub outputs: Option<Range<usize>>,
    /// Stored `[inputs, outputs]`, as GPT-2 does.
    pub transposed: bool,
}

impl Place {
    pub(super) fn of(weight: Weight, config: &ModelConfig, prefix: Prefix) -> Self {
        let gpt2 = config.positions == Positions::Learned;
        let wrapped = prefix == Prefix::Wrapped && weight != Weight::Output;
        let mut place = if gpt2 { gpt2_place(weight, config) } else { llama_place(weight) };
        if wrapped {
            let prefix = if gpt2 { "transformer" } else { "model" };
            place.name = format!("{prefix}.{}", place.name);
        }
        place
    }
}

fn llama_place(weight: Weight) -> Place {
    let name = match weight {
        Weight::TokenEmbedding => "embed_tokens".to_owned(),
        Weight::PositionEmbedding => "position_embeddings".to_owned(),
        Weight::OutputNorm => "norm".to_owned(),
        Weight::Output => "lm_head".to_owned(),
        Weight::Layer(layer, weight) => {
            let name = match weight {
                LayerWeight::AttentionNorm => "input_layernorm",
                LayerWeight::Query => "self_attn.q_proj",
                LayerWeight::Key => "self_attn.k_proj",
                LayerWeight::Value => "self_attn.v_proj",
                LayerWeight::QueryNorm => "self_attn.q_norm",
                LayerWeight::KeyNorm => "self_attn.k_norm",
                LayerWeight::AttentionOutput => "self_attn.o_proj",
                LayerWeight::MlpNorm => "post_attention_layernorm",
                LayerWeight::Gate => "mlp.gate_proj",
                LayerWeight::Up => "mlp.up_proj",
                LayerWeight::Down => "mlp.down_proj",
            };
            format!("layers.{layer}.{name}")
        }
    };
    Place { name, outputs: None, transposed: false }
}

fn gpt2_place(weight: Weight, config: &ModelConfig) -> Place {
    let h = config.hidden;
    let (name, outputs, transposed) = match weight {
        Weight::TokenEmbedding => ("wte".to_owned(), None, false),
        Weight::PositionEmbedding => ("wpe".to_owned(), None, false),
        Weight::OutputNorm => ("ln_f".to_owned(), None, false),
        Weight::Output => ("lm_head".to_owned(), None, false),
        Weight::Layer(layer, weight) => {
            let (name, outputs) = match weight {
                LayerWeight::AttentionNorm => ("ln_1", None),
                LayerWeight::Query => ("attn.c_attn", Some(0..h)),
                LayerWeight::Key => ("attn.c_attn", Some(h..2 * h)),
                LayerWeight::Value => ("attn.c_attn", Some(2 * h..3 * h)),
                LayerWeight::QueryNorm => ("attn.q_norm", None),
                LayerWeight::KeyNorm => ("attn.k_norm", None),
                LayerWeight::AttentionOutput => ("attn.c_proj", None),
                LayerWeight::MlpNorm => ("ln_2", None),
                LayerWeight::Gate => ("mlp.gate", None),
                LayerWeight::Up => ("mlp.c_fc", None),
                LayerWeight::Down => ("mlp.c_proj", None),
            };
            (format!("h.{layer}.{name}"), outputs, true)
        }
    };
    Place { name, outputs, transposed }
}
