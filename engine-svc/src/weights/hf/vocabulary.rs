//! The vocabulary in `tokenizer.json`: as much of it as tells one vocabulary from another.

use std::collections::HashMap;
use std::path::Path;

use serde::Deserialize;
use serde::de::IgnoredAny;

use super::read_json;
use crate::weights::error::LoadError;

/// A file that claims ids beyond this is refused before memory is taken for them.
const MAX_VOCABULARY: u32 = 1 << 22;

/// Token strings in the order of their ids, unused ones empty; none without the file, or where it lists
/// tokens in another way than byte-pair encoders do.
pub(super) fn read(path: &Path) -> Result<Option<Vec<String>>, LoadError> {
    if !path.exists() {
        return Ok(None);
    }
    let TokenizerJson { model, added_tokens } = read_json(path)?;
    let Vocabulary::ById(ids) = model.vocab else { return Ok(None) };
    let mut tokens = Vec::new();
    let added = added_tokens.into_iter().map(|token| (token.content, token.id));
    for (token, id) in ids.into_iter().chain(added) {
        if id >= MAX_VOCABULARY {
            return Err(LoadError::Config {
                origin: path.display().to_string(),
                field: "token id",
                value: id.to_string(),
                problem: "no vocabulary is as large",
            });
        }
        let id = id as usize;
        if tokens.len() <= id {
            tokens.resize(id + 1, String::new());
        }
        tokens[id] = token;
    }
    Ok(Some(tokens))
}

#[derive(Deserialize)]
struct TokenizerJson {
    model: Model,
    #[serde(default)]
    added_tokens: Vec<AddedToken>,
}

#[derive(Deserialize)]
struct Model {
    vocab: Vocabulary,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Vocabulary {
    ById(HashMap<String, u32>),
    Other(IgnoredAny),
}

#[derive(Deserialize)]
struct AddedToken {
    id: u32,
    content: String,
}
