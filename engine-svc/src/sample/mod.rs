//! Sampling: which token follows, given logits.
//!
//! The noise is a pure function of (seed, absolute position), so that a request that is resumed, batched with
//! others or preempted says the same.

mod choose;
mod noise;

/// How to choose the next token. Checked where it is made: the fields are in range.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sampling {
    temperature: f32,
    top_k: u32,
    top_p: f32,
    min_p: f32,
    seed: u64,
}

impl Sampling {
    /// The most likely token, always.
    pub const GREEDY: Self = Self { temperature: 0.0, top_k: 0, top_p: 1.0, min_p: 0.0, seed: 0 };

    /// Tokens with probability softmax(logits / `temperature`), cut in this order and renormalized:
    /// the `top_k` most likely (0: all); the smallest set of at least `top_p`; those of at least `min_p` times the
    /// most likely. `temperature` 0 is greedy whatever the rest.
    ///
    /// # Errors
    /// [`InvalidSampling`] names the first field out of range.
    pub fn new(
        temperature: f32,
        top_k: u32,
        top_p: f32,
        min_p: f32,
        seed: u64,
    ) -> Result<Self, InvalidSampling> {
        if !(temperature.is_finite() && temperature >= 0.0) {
            return Err(InvalidSampling { field: "temperature", range: "finite and at least 0" });
        }
        if !(top_p > 0.0 && top_p <= 1.0) {
            return Err(InvalidSampling { field: "top_p", range: "above 0 and at most 1" });
        }
        if !(0.0..=1.0).contains(&min_p) {
            return Err(InvalidSampling { field: "min_p", range: "0 to 1" });
        }
        Ok(Self { temperature, top_k, top_p, min_p, seed })
    }

    /// Whether the most likely token is taken, always.
    pub fn is_greedy(&self) -> bool {
        self.temperature == 0.0
    }

    /// Divisor of the logits; 0 is greedy.
    pub fn temperature(&self) -> f32 {
        self.temperature
    }

    /// How many of the most likely tokens are kept; 0: all.
    pub fn top_k(&self) -> u32 {
        self.top_k
    }

    /// The share of probability that is kept.
    pub fn top_p(&self) -> f32 {
        self.top_p
    }

    /// The least probability kept, as a part of the most likely token's.
    pub fn min_p(&self) -> f32 {
        self.min_p
    }

    /// Seed of the noise.
    pub fn seed(&self) -> u64 {
        self.seed
    }
}

/// A sampling field out of range.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{field} must be {range}")]
pub struct InvalidSampling {
    /// The field, as named on the wire.
    pub field: &'static str,
    /// What is allowed.
    pub range: &'static str,
}
