//! The configuration in a GGUF file's metadata.

use firstlight_gguf::{GgufFile, Metadata, Reason};
use firstlight_kernels::rope::RopePairing;

use crate::weights::config::{Mlp, ModelConfig, Norm, Positions};
use crate::weights::error::LoadError;
use crate::weights::rope::RopeScaling;

const TOKEN_EMBEDDING: &str = "token_embd.weight";

pub(super) fn read(file: &GgufFile) -> Result<ModelConfig, LoadError> {
    let origin = file.path().display().to_string();
    let metadata = file.metadata();
    let architecture = metadata.str("general.architecture").map_err(|reason| file.error(reason))?;
    match Family::of(architecture) {
        Some(family) => Reader { file, metadata, architecture, family }.config()?.check(&origin),
        None => Err(LoadError::Unsupported {
            origin,
            what: format!("architecture {architecture} (other than llama, qwen2, qwen3, gpt2)"),
        }),
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Family {
    Llama,
    Gpt2,
}

impl Family {
    fn of(architecture: &str) -> Option<Self> {
        match architecture {
            "llama" | "qwen2" | "qwen3" => Some(Self::Llama),
            "gpt2" => Some(Self::Gpt2),
            _ => None,
        }
    }
}

/// Metadata under the architecture's prefix.
struct Reader<'a> {
    file: &'a GgufFile,
    metadata: Metadata<'a>,
    architecture: &'a str,
    family: Family,
}

impl Reader<'_> {
    fn config(&self) -> Result<ModelConfig, LoadError> {
        let llama = self.family == Family::Llama;
        let hidden = self.size("embedding_length")?;
        let heads = self.size("attention.head_count")?;
        let head_dim = match self.optional("attention.key_length")? {
            Some(width) => width,
            None => hidden.checked_div(heads).unwrap_or(0),
        };
        let norm_eps = match self.family {
            Family::Llama => self.float("attention.layer_norm_rms_epsilon")?,
            Family::Gpt2 => self.float("attention.layer_norm_epsilon")?,
        };
        Ok(ModelConfig {
            name: self.metadata.str("general.name").unwrap_or(self.architecture).to_owned(),
            architecture: self.architecture.to_owned(),
            layers: self.size("block_count")?,
            hidden,
            heads,
            kv_heads: self.optional("attention.head_count_kv")?.unwrap_or(heads),
            head_dim,
            mlp_width: self.size("feed_forward_length")?,
            vocab_size: self.vocab_size()?,
            context_length: self.size("context_length")?,
            norm: if llama { Norm::Rms } else { Norm::Layer },
            norm_eps: norm_eps as f32,
            positions: if llama { self.rotary(head_dim)? } else { Positions::Learned },
            mlp: if llama { Mlp::GatedSilu } else { Mlp::GeluTanh },
            query_key_norm: self.architecture == "qwen3",
            tied_output: self.file.tensor("output.weight").is_none(),
            eos_ids: self.eos_ids()?,
        })
    }

    fn vocab_size(&self) -> Result<usize, LoadError> {
        match self.file.tensor(TOKEN_EMBEDDING) {
            Some(tensor) => Ok(tensor.info.shape[0]),
            None => Err(self.refuse(Reason::MissingTensor(TOKEN_EMBEDDING.to_owned()))),
        }
    }

    /// The llama layout stores query and key rows so that neighbours are rotated together.
    fn rotary(&self, head_dim: usize) -> Result<Positions, LoadError> {
        let rotary_dim = self.optional("rope.dimension_count")?.unwrap_or(head_dim).min(head_dim);
        let base = self.optional_float("rope.freq_base")?.unwrap_or(10_000.0);
        let mut inverse_frequencies = self.scaling()?.frequencies(base, rotary_dim);
        if let Some(factors) = self.file.tensor("rope_freqs.weight") {
            let mut values = vec![0.0; factors.info.row_len()];
            factors.read_rows(0..1, &mut values);
            for (frequency, factor) in inverse_frequencies.iter_mut().zip(values) {
                *frequency /= f64::from(factor);
            }
        }
        let pairing = match self.architecture {
            "llama" => RopePairing::Interleaved,
            _ => RopePairing::Halves,
        };
        Ok(Positions::Rotary { pairing, inverse_frequencies })
    }

    fn scaling(&self) -> Result<RopeScaling, LoadError> {
        let factor = || self.float("rope.scaling.factor");
        match self.metadata.str(&self.key("rope.scaling.type")) {
            Err(Reason::MissingKey(_)) | Ok("none") => Ok(RopeScaling::None),
            Ok("linear") => Ok(RopeScaling::Linear { factor: factor()? }),
            Ok(other) => Err(LoadError::Unsupported {
                origin: self.file.path().display().to_string(),
                what: format!("rotary scaling {other}"),
            }),
            Err(reason) => Err(self.refuse(reason)),
        }
    }

    fn eos_ids(&self) -> Result<Vec<u32>, LoadError> {
        let mut ids = Vec::new();
        for key in ["eos", "eot", "eom"] {
            match self.metadata.unsigned(&format!("tokenizer.ggml.{key}_token_id")) {
                Ok(id) => ids.push(u32::try_from(id).unwrap_or(u32::MAX)),
                Err(Reason::MissingKey(_)) => {}
                Err(reason) => return Err(self.refuse(reason)),
            }
        }
        ids.sort_unstable();
        ids.dedup();
        Ok(ids)
    }

    fn size(&self, name: &str) -> Result<usize, LoadError> {
        let value = self.metadata.unsigned(&self.key(name)).map_err(|reason| self.refuse(reason))?;
        Ok(usize::try_from(value).unwrap_or(usize::MAX))
    }

    fn optional(&self, name: &str) -> Result<Option<usize>, LoadError> {
        self.metadata.get(&self.key(name)).map(|_| self.size(name)).transpose()
    }

    fn float(&self, name: &str) -> Result<f64, LoadError> {
        self.metadata.float(&self.key(name)).map_err(|reason| self.refuse(reason))
    }

    fn optional_float(&self, name: &str) -> Result<Option<f64>, LoadError> {
        self.metadata.get(&self.key(name)).map(|_| self.float(name)).transpose()
    }

    fn key(&self, name: &str) -> String {
        format!("{}.{name}", self.architecture)
    }

    fn refuse(&self, reason: Reason) -> LoadError {
        self.file.error(reason).into()
    }
}
