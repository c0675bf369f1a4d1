//! Text to tokens and back. The engine knows token ids only.
//!
//! - [`tokenizer`]: text → ids, from a model's own files
//! - [`gguf`], [`gpt2`]: tokenizers that come without a `tokenizer.json`
//! - [`pieces`]: the bytes each token stands for
//! - [`detokenizer`]: ids → text as they arrive, never half a character
//! - [`stop`]: stop strings across token boundaries

pub mod detokenizer;
pub mod gguf;
pub mod gpt2;
pub mod pieces;
pub mod stop;
pub mod tokenizer;

pub use detokenizer::Detokenizer;
pub use pieces::Pieces;
pub use stop::StopStrings;
pub use tokenizer::{LoadError, Tokenizer};
