//! The tokenizer in GPT-2's own two files: tokens with their ids (JSON), and merges in order of rank.

use std::path::{Path, PathBuf};

use tokenizers::{AddedToken, Tokenizer, models::bpe::BPE, pre_tokenizers::byte_level::ByteLevel};

use super::LoadError;

/// Names of the two files: as OpenAI released them, and as Hugging Face keeps them.
const NAMES: [(&str, &str); 2] = [("encoder.json", "vocab.bpe"), ("vocab.json", "merges.txt")];
/// The one special token.
const END_OF_TEXT: &str = "<|endoftext|>";

/// The two files, when `folder` has them.
pub fn files(folder: &Path) -> Option<(PathBuf, PathBuf)> {
    let both = NAMES.map(|(tokens, merges)| (folder.join(tokens), folder.join(merges)));
    both.into_iter().find(|(tokens, merges)| tokens.is_file() && merges.is_file())
}

/// Loads the two files.
///
/// # Errors
/// Names the file and the reason.
pub fn load((tokens, merges): (PathBuf, PathBuf)) -> Result<Tokenizer, LoadError> {
    let refuse = |reason: String| LoadError::Json { path: tokens.clone(), reason };
    let bpe = BPE::from_file(&tokens.to_string_lossy(), &merges.to_string_lossy()).build();
    let mut tokenizer = Tokenizer::new(bpe.map_err(|e| refuse(e.to_string()))?);
    tokenizer.with_pre_tokenizer(Some(ByteLevel::new(false, true, true)));
    tokenizer.with_decoder(Some(ByteLevel::default()));
    if tokenizer.token_to_id(END_OF_TEXT).is_some() {
        let special = [AddedToken::from(END_OF_TEXT, true)];
        tokenizer.add_special_tokens(special).map_err(|e| refuse(e.to_string()))?;
    }
    Ok(tokenizer)
}
