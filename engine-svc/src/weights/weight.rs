//! The names of weights, the same for every model and source.

use std::fmt;

/// A weight of a model: a matrix or a norm, with perhaps a bias beside it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Weight {
    /// `[vocabulary, hidden]`.
    TokenEmbedding,
    /// `[context, hidden]`, where positions are learned.
    PositionEmbedding,
    /// Norm before the output.
    OutputNorm,
    /// `[vocabulary, hidden]`; absent where the token embedding serves.
    Output,
    /// A weight of one layer.
    Layer(usize, LayerWeight),
}

/// A weight that each layer has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LayerWeight {
    /// Norm before attention.
    AttentionNorm,
    /// `[heads · head_dim, hidden]`.
    Query,
    /// `[kv_heads · head_dim, hidden]`.
    Key,
    /// `[kv_heads · head_dim, hidden]`.
    Value,
    /// Norm of each query head (Qwen3).
    QueryNorm,
    /// Norm of each key head (Qwen3).
    KeyNorm,
    /// `[hidden, heads · head_dim]`.
    AttentionOutput,
    /// Norm before the feed-forward block.
    MlpNorm,
    /// `[mlp_width, hidden]`, in gated blocks.
    Gate,
    /// `[mlp_width, hidden]`.
    Up,
    /// `[hidden, mlp_width]`.
    Down,
}

impl fmt::Display for Weight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Layer(layer, weight) => write!(f, "{weight:?} of layer {layer}"),
            other => write!(f, "{other:?}"),
        }
    }
}
