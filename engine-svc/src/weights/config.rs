//! What kind of model it is: all that the forward and the KV pool need to know.

use firstlight_kernels::rope::RopePairing;

use super::error::LoadError;
use super::weight::{LayerWeight, Weight};

/// A decoder-only transformer.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelConfig {
    /// Name for people.
    pub name: String,
    /// As the source calls it: `llama`, `qwen2`, `qwen3`, `gpt2`.
    pub architecture: String,
    /// Layers.
    pub layers: usize,
    /// Width of the residual stream.
    pub hidden: usize,
    /// Query heads.
    pub heads: usize,
    /// Key/value heads; a divisor of the query heads.
    pub kv_heads: usize,
    /// Width of a head.
    pub head_dim: usize,
    /// Inner width of the feed-forward block.
    pub mlp_width: usize,
    /// Token ids are below this.
    pub vocab_size: usize,
    /// Longest sequence, in tokens.
    pub context_length: usize,
    /// How rows are normalized.
    pub norm: Norm,
    /// Added inside the norm's square root.
    pub norm_eps: f32,
    /// How positions enter.
    pub positions: Positions,
    /// The feed-forward block.
    pub mlp: Mlp,
    /// Whether each query and key head is normalized before the rotation (Qwen3).
    pub query_key_norm: bool,
    /// Whether the token embedding serves as the output matrix.
    pub tied_output: bool,
    /// Ids that end a sequence.
    pub eos_ids: Vec<u32>,
}

/// How rows are normalized.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Norm {
    /// By the root mean square (Zhang and Sennrich 2019).
    Rms,
    /// By mean and variance, with a bias (Ba et al. 2016).
    Layer,
}

/// How positions enter.
#[derive(Debug, Clone, PartialEq)]
pub enum Positions {
    /// A learned vector added to the embedding.
    Learned,
    /// Rotation of queries and keys (Su et al. 2021).
    Rotary {
        /// Which elements of a head are rotated together, in the order this source stores them.
        pairing: RopePairing,
        /// Radians per position, one per pair, scaling included.
        inverse_frequencies: Vec<f64>,
    },
}

/// The feed-forward block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mlp {
    /// `down(silu(gate(x)) · up(x))`.
    GatedSilu,
    /// `down(gelu(up(x)))`, GELU in its tanh form.
    GeluTanh,
    /// `down(gelu(up(x)))`, GELU exact.
    GeluErf,
}

/// Widest head that the attention kernels take.
pub(super) const MAX_HEAD_DIM: usize = 256;

/// No model comes near this in any dimension; it keeps products of two dimensions within 64 bits.
const MAX_DIMENSION: usize = 1 << 24;

impl ModelConfig {
    /// Width of all query heads.
    pub fn query_width(&self) -> usize {
        self.heads * self.head_dim
    }

    /// Width of all key heads, or of all value heads.
    pub fn kv_width(&self) -> usize {
        self.kv_heads * self.head_dim
    }

    /// `(outputs, inputs)` of a matrix; `(width, 1)` of a norm.
    pub fn shape(&self, weight: Weight) -> (usize, usize) {
        match weight {
            Weight::TokenEmbedding | Weight::Output => (self.vocab_size, self.hidden),
            Weight::PositionEmbedding => (self.context_length, self.hidden),
            Weight::OutputNorm => (self.hidden, 1),
            Weight::Layer(_, weight) => match weight {
                LayerWeight::Query => (self.query_width(), self.hidden),
                LayerWeight::Key | LayerWeight::Value => (self.kv_width(), self.hidden),
                LayerWeight::AttentionOutput => (self.hidden, self.query_width()),
                LayerWeight::Gate | LayerWeight::Up => (self.mlp_width, self.hidden),
                LayerWeight::Down => (self.hidden, self.mlp_width),
                LayerWeight::AttentionNorm | LayerWeight::MlpNorm => (self.hidden, 1),
                LayerWeight::QueryNorm | LayerWeight::KeyNorm => (self.head_dim, 1),
            },
        }
    }

    /// Checks what the forward relies on.
    ///
    /// # Errors
    /// [`LoadError::Config`] for the first field that makes no sense.
    pub fn check(self, origin: &str) -> Result<Self, LoadError> {
        let refuse = |field, value: usize, problem| {
            let (origin, value) = (origin.to_owned(), value.to_string());
            Err(LoadError::Config { origin, field, value, problem })
        };
        let dimensions = [
            ("layers", self.layers),
            ("hidden size", self.hidden),
            ("attention heads", self.heads),
            ("key/value heads", self.kv_heads),
            ("head dimension", self.head_dim),
            ("feed-forward width", self.mlp_width),
            ("vocabulary size", self.vocab_size),
            ("context length", self.context_length),
        ];
        for (field, value) in dimensions {
            if !(1..=MAX_DIMENSION).contains(&value) {
                return refuse(field, value, "not between 1 and 16777216");
            }
        }
        if !self.heads.is_multiple_of(self.kv_heads) {
            return refuse("key/value heads", self.kv_heads, "no divisor of the attention heads");
        }
        if !self.head_dim.is_multiple_of(8) || self.head_dim > MAX_HEAD_DIM {
            return refuse("head dimension", self.head_dim, "no multiple of 8 up to 256");
        }
        if let Positions::Rotary { inverse_frequencies, .. } = &self.positions
            && 2 * inverse_frequencies.len() > self.head_dim
        {
            let rotated = 2 * inverse_frequencies.len();
            return refuse("rotary dimension", rotated, "wider than a head");
        }
        if let Some(&id) = self.eos_ids.iter().find(|&&id| id as usize >= self.vocab_size) {
            return refuse("end-of-sequence id", id as usize, "outside the vocabulary");
        }
        Ok(self)
    }
}
