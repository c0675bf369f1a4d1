//! Text → ids, from a model's own files: a GGUF file, `tokenizer.json`, or GPT-2's two files.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use firstlight_gguf::GgufError;
use firstlight_proto::vocabulary;
use tokenizers::DecoderWrapper;

use super::{Pieces, gguf, gpt2};

/// The tokenizer of the served model.
pub struct Tokenizer {
    inner: tokenizers::Tokenizer,
    pieces: Arc<Pieces>,
    fingerprint: String,
}

/// Why a vocabulary was refused.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The GGUF file is broken; says where.
    #[error(transparent)]
    Gguf(#[from] GgufError),
    /// `tokenizer.json` cannot be read or parsed.
    #[error("{}: {reason}", path.display())]
    Json {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// The file is sound but asks for something that is not there.
    #[error("{}: not supported: {reason}", path.display())]
    Unsupported {
        /// The file.
        path: PathBuf,
        /// What it asks for, and what there is.
        reason: String,
    },
}

impl Tokenizer {
    /// Loads the vocabulary of a model: a GGUF file, a folder with `tokenizer.json` (or that file itself), or
    /// a folder with GPT-2's two files.
    ///
    /// # Errors
    /// Names the file and the reason.
    pub fn load(model: &Path) -> Result<Self, LoadError> {
        if model.extension().is_some_and(|ext| ext.eq_ignore_ascii_case("gguf")) {
            return Self::new(model, gguf::load(model)?);
        }
        let path = if model.is_dir() { model.join("tokenizer.json") } else { model.to_owned() };
        if !path.exists()
            && let Some(files) = gpt2::files(model)
        {
            return Self::new(model, gpt2::load(files)?);
        }
        let inner = tokenizers::Tokenizer::from_file(&path)
            .map_err(|e| LoadError::Json { path: path.clone(), reason: e.to_string() })?;
        Self::new(&path, inner)
    }

    /// Token ids of `text`. Special tokens written in it are taken as such; those that the model's own
    /// files add around a text (a leading BOS) are added. Takes about 2 µs per word.
    ///
    /// # Errors
    /// Says what the tokenizer could not do.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>, String> {
        let encoding = self.inner.encode_fast(text, true).map_err(|e| e.to_string())?;
        Ok(encoding.get_ids().to_vec())
    }

    /// The bytes each token stands for; special tokens stand for none.
    pub fn pieces(&self) -> &Arc<Pieces> {
        &self.pieces
    }

    /// Number of token ids.
    pub fn vocab_size(&self) -> usize {
        self.pieces.len()
    }

    /// Fingerprint of the vocabulary; see [`vocabulary::fingerprint`].
    pub fn fingerprint(&self) -> &str {
        &self.fingerprint
    }

    fn new(path: &Path, inner: tokenizers::Tokenizer) -> Result<Self, LoadError> {
        if !matches!(inner.get_decoder(), Some(DecoderWrapper::ByteLevel(_))) {
            let reason = "its decoder is not byte-level (GPT-2, SmolLM2, Llama 3 and Qwen are)".into();
            return Err(LoadError::Unsupported { path: path.to_owned(), reason });
        }
        let tokens = by_id(inner.get_vocab(true))
            .map_err(|reason| LoadError::Unsupported { path: path.to_owned(), reason })?;
        let added = inner.get_added_tokens_decoder();
        let special = |id: usize| added.get(&(id as u32)).is_some_and(|token| token.special);
        let pieces = tokens.iter().enumerate().map(|(id, token)| (!special(id)).then_some(token.as_str()));
        Ok(Self {
            pieces: Arc::new(Pieces::from_byte_level(pieces)),
            fingerprint: vocabulary::fingerprint(tokens.iter().map(String::as_str)),
            inner,
        })
    }
}

/// A file that claims ids beyond this is refused before memory is taken for them.
const MAX_VOCAB: u32 = 1 << 22;

/// Token strings in the order of their ids; unused ids are empty.
fn by_id(vocab: impl IntoIterator<Item = (String, u32)>) -> Result<Vec<String>, String> {
    let mut tokens = Vec::new();
    for (token, id) in vocab {
        if id >= MAX_VOCAB {
            return Err(format!("token id {id}; ids are below {MAX_VOCAB}"));
        }
        let id = id as usize;
        if tokens.len() <= id {
            tokens.resize(id + 1, String::new());
        }
        tokens[id] = token;
    }
    Ok(tokens)
}
