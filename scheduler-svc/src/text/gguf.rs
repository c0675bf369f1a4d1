//! The tokenizer that a GGUF file describes: byte-level BPE from its tokens and merges, cut into words as
//! `tokenizer.ggml.pre` says.

use std::path::Path;

use firstlight_gguf::{GgufFile, Metadata, Reason};
use tokenizers::{
    AddedToken, PreTokenizerWrapper, Tokenizer,
    models::bpe::BPE,
    pre_tokenizers::{byte_level::ByteLevel, digits::Digits, sequence::Sequence},
};

use super::LoadError;

/// `tokenizer.ggml.token_type` of a control token, such as `<|im_start|>`.
const CONTROL: u64 = 3;
/// `tokenizer.ggml.token_type` of a token that is matched in the text before BPE, such as a long run of spaces.
const USER_DEFINED: u64 = 4;

/// Loads the vocabulary of a GGUF file.
///
/// # Errors
/// When the file is broken, or asks for a tokenizer that is not byte-level BPE with a known word pattern.
pub fn load(path: &Path) -> Result<Tokenizer, LoadError> {
    let file = GgufFile::open(path)?;
    build(path, &file.metadata()).map_err(|refusal| match refusal {
        Refusal::Gguf(reason) => file.error(reason).into(),
        Refusal::Load(error) => error,
    })
}

enum Refusal {
    Gguf(Reason),
    Load(LoadError),
}

impl From<Reason> for Refusal {
    fn from(reason: Reason) -> Self {
        Self::Gguf(reason)
    }
}

fn build(path: &Path, metadata: &Metadata<'_>) -> Result<Tokenizer, Refusal> {
    let refuse = |reason: String| Refusal::Load(LoadError::Unsupported { path: path.to_owned(), reason });
    let model = metadata.str("tokenizer.ggml.model")?;
    if model != "gpt2" {
        return Err(refuse(format!("tokenizer.ggml.model {model:?}; only \"gpt2\" (byte-level BPE)")));
    }
    let words = words(metadata.str("tokenizer.ggml.pre")?).map_err(refuse)?;
    let tokens = metadata.strs("tokenizer.ggml.tokens")?;
    let kinds = metadata.unsigneds("tokenizer.ggml.token_type")?;
    let merges = metadata.strs("tokenizer.ggml.merges")?;

    let vocab = tokens.iter().zip(0u32..).map(|(token, id)| ((*token).to_owned(), id)).collect();
    let merges = merges
        .into_iter()
        .map(|merge| merge.split_once(' ').map(|(a, b)| (a.to_owned(), b.to_owned())))
        .collect::<Option<Vec<_>>>()
        .ok_or_else(|| refuse("a merge without a space between its two halves".into()))?;
    let bpe = BPE::builder().vocab_and_merges::<tokenizers::models::bpe::Vocab>(vocab, merges).build();
    let mut tokenizer = Tokenizer::new(bpe.map_err(|e| refuse(e.to_string()))?);
    tokenizer.with_pre_tokenizer(Some(words));
    tokenizer.with_decoder(Some(ByteLevel::default()));

    let of_kind = |kind| tokens.iter().zip(&kinds).filter(move |(_, k)| **k == kind).map(|(token, _)| *token);
    let special: Vec<_> = of_kind(CONTROL).map(|token| AddedToken::from(token, true)).collect();
    let added: Vec<_> =
        of_kind(USER_DEFINED).map(|token| AddedToken::from(token, false).normalized(false)).collect();
    tokenizer.add_special_tokens(special).map_err(|e| refuse(e.to_string()))?;
    tokenizer.add_tokens(added).map_err(|e| refuse(e.to_string()))?;
    Ok(tokenizer)
}

/// How text is cut into words before BPE.
fn words(pre: &str) -> Result<PreTokenizerWrapper, String> {
    let gpt2 = || ByteLevel::new(false, true, true).into();
    match pre {
        "gpt-2" => Ok(gpt2()),
        // Digits stand alone *before* the word pattern is applied, as llama.cpp does.
        "smollm" => Ok(Sequence::new(vec![Digits::new(true).into(), gpt2()]).into()),
        other => Err(format!("tokenizer.ggml.pre {other:?}; one of \"gpt-2\", \"smollm\"")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_word_pattern_is_refused_by_name() {
        assert!(words("deepseek-llm").unwrap_err().contains("deepseek-llm"));
    }
}
