//! The configuration in `config.json`, and the end-of-sequence ids in `generation_config.json`.

use std::path::Path;

use firstlight_kernels::rope::RopePairing;
use serde::Deserialize;

use super::{model_name, read_json};
use crate::weights::config::{Mlp, ModelConfig, Norm, Positions};
use crate::weights::error::LoadError;
use crate::weights::rope::RopeScaling;

pub(super) fn read(folder: &Path) -> Result<ModelConfig, LoadError> {
    let path = folder.join("config.json");
    let kind: Kind = read_json(&path)?;
    let origin = path.display().to_string();
    let mut config = match kind.model_type.as_str() {
        "llama" | "qwen2" | "qwen3" => read_json::<Llama>(&path)?.into_config(kind, folder, &origin)?,
        "gpt2" => read_json::<Gpt2>(&path)?.into_config(kind, folder, &origin)?,
        other => {
            let what = format!("model type {other} (other than llama, qwen2, qwen3, gpt2)");
            return Err(LoadError::Unsupported { origin, what });
        }
    };
    let generation = folder.join("generation_config.json");
    if generation.exists() {
        let Eos { eos_token_id } = read_json(&generation)?;
        config.eos_ids.extend(eos_token_id.into_iter().flat_map(OneOrMany::into_vec));
    }
    config.eos_ids.sort_unstable();
    config.eos_ids.dedup();
    config.check(&origin)
}

/// What every `config.json` says.
#[derive(Deserialize)]
struct Kind {
    model_type: String,
    vocab_size: usize,
    eos_token_id: Option<OneOrMany>,
    #[serde(rename = "_name_or_path")]
    name: Option<String>,
    tie_word_embeddings: Option<bool>,
}

impl Kind {
    fn eos_ids(&self) -> Vec<u32> {
        self.eos_token_id.clone().map(OneOrMany::into_vec).unwrap_or_default()
    }

    fn name(&self, folder: &Path) -> String {
        model_name::find(self.name.as_deref(), folder).unwrap_or_else(|| self.model_type.clone())
    }
}

#[derive(Deserialize)]
struct Llama {
    hidden_size: usize,
    num_hidden_layers: usize,
    num_attention_heads: usize,
    num_key_value_heads: Option<usize>,
    head_dim: Option<usize>,
    intermediate_size: usize,
    max_position_embeddings: usize,
    rms_norm_eps: f32,
    hidden_act: Option<String>,
    rope_theta: Option<f64>,
    rope_scaling: Option<RopeParameters>,
    /// Where transformers 5 writes both.
    rope_parameters: Option<RopeParameters>,
    #[serde(default)]
    use_sliding_window: bool,
}

impl Llama {
    fn into_config(self, kind: Kind, folder: &Path, origin: &str) -> Result<ModelConfig, LoadError> {
        let unsupported = |what: String| Err(LoadError::Unsupported { origin: origin.to_owned(), what });
        if let Some(other) = self.hidden_act.filter(|act| act != "silu") {
            return unsupported(format!("activation {other}"));
        }
        if self.use_sliding_window {
            return unsupported("sliding-window attention".to_owned());
        }
        let rope = self.rope_parameters.or(self.rope_scaling).unwrap_or_default();
        let base = rope.rope_theta.or(self.rope_theta).unwrap_or(10_000.0);
        let scaling = match rope.scaling() {
            Ok(scaling) => scaling,
            Err(what) => return unsupported(what),
        };
        let head_dim =
            self.head_dim.or(self.hidden_size.checked_div(self.num_attention_heads)).unwrap_or_default();
        Ok(ModelConfig {
            name: kind.name(folder),
            eos_ids: kind.eos_ids(),
            layers: self.num_hidden_layers,
            hidden: self.hidden_size,
            heads: self.num_attention_heads,
            kv_heads: self.num_key_value_heads.unwrap_or(self.num_attention_heads),
            head_dim,
            mlp_width: self.intermediate_size,
            vocab_size: kind.vocab_size,
            context_length: self.max_position_embeddings,
            norm: Norm::Rms,
            norm_eps: self.rms_norm_eps,
            positions: Positions::Rotary {
                pairing: RopePairing::Halves,
                inverse_frequencies: scaling.frequencies(base, head_dim),
            },
            mlp: Mlp::GatedSilu,
            query_key_norm: kind.model_type == "qwen3",
            tied_output: kind.tie_word_embeddings.unwrap_or(false),
            architecture: kind.model_type,
        })
    }
}

#[derive(Deserialize, Default)]
struct RopeParameters {
    #[serde(alias = "type")]
    rope_type: Option<String>,
    rope_theta: Option<f64>,
    factor: Option<f64>,
    low_freq_factor: Option<f64>,
    high_freq_factor: Option<f64>,
    original_max_position_embeddings: Option<f64>,
}

impl RopeParameters {
    /// The scaling, or what of it cannot be done.
    fn scaling(&self) -> Result<RopeScaling, String> {
        let kind = self.rope_type.as_deref().unwrap_or("default");
        let needed = |value: Option<f64>, field: &str| {
            value.ok_or_else(|| format!("rotary scaling {kind} without {field}"))
        };
        match kind {
            "default" => Ok(RopeScaling::None),
            "linear" => Ok(RopeScaling::Linear { factor: needed(self.factor, "factor")? }),
            "llama3" => Ok(RopeScaling::Llama3 {
                factor: needed(self.factor, "factor")?,
                low: needed(self.low_freq_factor, "low_freq_factor")?,
                high: needed(self.high_freq_factor, "high_freq_factor")?,
                original_context: needed(
                    self.original_max_position_embeddings,
                    "original_max_position_embeddings",
                )?,
            }),
            other => Err(format!("rotary scaling {other}")),
        }
    }
}

#[derive(Deserialize)]
struct Gpt2 {
    n_embd: usize,
    n_layer: usize,
    n_head: usize,
    n_inner: Option<usize>,
    n_positions: usize,
    layer_norm_epsilon: f32,
    activation_function: Option<String>,
    #[serde(default)]
    scale_attn_by_inverse_layer_idx: bool,
    #[serde(default)]
    reorder_and_upcast_attn: bool,
}

impl Gpt2 {
    fn into_config(self, kind: Kind, folder: &Path, origin: &str) -> Result<ModelConfig, LoadError> {
        let unsupported = |what: String| Err(LoadError::Unsupported { origin: origin.to_owned(), what });
        if self.scale_attn_by_inverse_layer_idx || self.reorder_and_upcast_attn {
            return unsupported("attention scaled by layer".to_owned());
        }
        let mlp = match self.activation_function.as_deref() {
            None | Some("gelu_new" | "gelu_pytorch_tanh") => Mlp::GeluTanh,
            Some("gelu") => Mlp::GeluErf,
            Some(other) => return unsupported(format!("activation {other}")),
        };
        Ok(ModelConfig {
            name: kind.name(folder),
            eos_ids: kind.eos_ids(),
            layers: self.n_layer,
            hidden: self.n_embd,
            heads: self.n_head,
            kv_heads: self.n_head,
            head_dim: self.n_embd.checked_div(self.n_head).unwrap_or_default(),
            mlp_width: self.n_inner.unwrap_or(self.n_embd.saturating_mul(4)),
            vocab_size: kind.vocab_size,
            context_length: self.n_positions,
            norm: Norm::Layer,
            norm_eps: self.layer_norm_epsilon,
            positions: Positions::Learned,
            mlp,
            query_key_norm: false,
            tied_output: kind.tie_word_embeddings.unwrap_or(true),
            architecture: kind.model_type,
        })
    }
}

#[derive(Deserialize)]
struct Eos {
    eos_token_id: Option<OneOrMany>,
}

#[derive(Deserialize, Clone)]
#[serde(untagged)]
enum OneOrMany {
    One(u32),
    Many(Vec<u32>),
}

impl OneOrMany {
    fn into_vec(self) -> Vec<u32> {
        match self {
            Self::One(id) => vec![id],
            Self::Many(ids) => ids,
        }
    }
}
