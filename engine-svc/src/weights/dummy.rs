//! Random weights of a named configuration: the shape of a real model, for load and speed.

use firstlight_kernels::rope::{RopePairing, inverse_frequencies};

use super::config::{Mlp, ModelConfig, Norm, Positions};
use super::error::LoadError;
use super::weight::Weight;
use super::{Matrix, WeightSource};

const KNOWN: [&str; 2] = ["gpt2", "smollm2-135m"];

/// Standard deviation of the values, as in the initialization of GPT-2.
const SPREAD: f32 = 0.02;

/// Random weights; the same seed gives the same values.
#[derive(Debug)]
pub struct DummyWeights {
    config: ModelConfig,
    seed: u64,
}

impl DummyWeights {
    /// The configuration `gpt2` (124M) or `smollm2-135m` with random weights.
    ///
    /// # Errors
    /// When there is no configuration of that name.
    pub fn new(name: &str, seed: u64) -> Result<Self, LoadError> {
        let config = match name {
            "gpt2" => gpt2(),
            "smollm2-135m" => smollm2_135m(),
            _ => {
                let (name, known) = (name.to_owned(), KNOWN.join(", "));
                return Err(LoadError::NoSuchDummy { name, known });
            }
        };
        Ok(Self { config: config.check(name)?, seed })
    }
}

impl WeightSource for DummyWeights {
    fn config(&self) -> &ModelConfig {
        &self.config
    }

    fn matrix(&self, weight: Weight) -> Result<Matrix<'_>, LoadError> {
        let stream = mix(self.seed ^ mix(stream_of(weight)));
        Ok(Matrix::new(self.config.shape(weight), move |index, row| {
            let mut state = mix(stream ^ mix(index as u64));
            for value in row {
                state = state.wrapping_add(GOLDEN_GAMMA);
                *value = uniform(mix(state));
            }
        }))
    }

    fn bias(&self, weight: Weight) -> Result<Option<Vec<f32>>, LoadError> {
        Ok((self.config.norm == Norm::Layer).then(|| vec![0.0; self.config.shape(weight).0]))
    }

    fn norm(&self, weight: Weight) -> Result<Vec<f32>, LoadError> {
        Ok(vec![1.0; self.config.shape(weight).0])
    }

    fn vocabulary(&self) -> Result<Option<Vec<String>>, LoadError> {
        Ok(None)
    }

    fn origin(&self) -> String {
        format!("dummy {} of seed {}", self.config.name, self.seed)
    }
}

/// GPT-2 of 124M parameters (Radford et al. 2019).
fn gpt2() -> ModelConfig {
    ModelConfig {
        name: "gpt2".to_owned(),
        architecture: "gpt2".to_owned(),
        layers: 12,
        hidden: 768,
        heads: 12,
        kv_heads: 12,
        head_dim: 64,
        mlp_width: 3072,
        vocab_size: 50257,
        context_length: 1024,
        norm: Norm::Layer,
        norm_eps: 1e-5,
        positions: Positions::Learned,
        mlp: Mlp::GeluTanh,
        query_key_norm: false,
        tied_output: true,
        eos_ids: vec![50256],
    }
}

/// SmolLM2-135M (Allal et al. 2025).
fn smollm2_135m() -> ModelConfig {
    ModelConfig {
        name: "smollm2-135m".to_owned(),
        architecture: "llama".to_owned(),
        layers: 30,
        hidden: 576,
        heads: 9,
        kv_heads: 3,
        head_dim: 64,
        mlp_width: 1536,
        vocab_size: 49152,
        context_length: 8192,
        norm: Norm::Rms,
        norm_eps: 1e-5,
        positions: Positions::Rotary {
            pairing: RopePairing::Halves,
            inverse_frequencies: inverse_frequencies(100_000.0, 64),
        },
        mlp: Mlp::GatedSilu,
        query_key_norm: false,
        tied_output: true,
        eos_ids: vec![2],
    }
}

const GOLDEN_GAMMA: u64 = 0x9E37_79B9_7F4A_7C15;

/// The finalizer of SplitMix64 (Steele et al. 2014).
fn mix(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ (x >> 31)
}

/// Uniform with mean 0 and standard deviation [`SPREAD`].
fn uniform(bits: u64) -> f32 {
    let unit = (bits >> 40) as f32 / (1 << 24) as f32;
    (unit - 0.5) * 12_f32.sqrt() * SPREAD
}

/// A number of its own for every weight.
fn stream_of(weight: Weight) -> u64 {
    match weight {
        Weight::TokenEmbedding => 1,
        Weight::PositionEmbedding => 2,
        Weight::OutputNorm => 3,
        Weight::Output => 4,
        Weight::Layer(layer, weight) => 16 * (layer as u64 + 1) + weight as u64,
    }
}
