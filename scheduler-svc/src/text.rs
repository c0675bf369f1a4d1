//! Text to tokens and back. The engine knows token ids only.
//!
//! - [`tokenizer`]: text → ids, from `tokenizer.json` or from a GGUF file's own vocabulary
//! - [`gguf`]: the tokenizer that a GGUF file describes
//! - [`pieces`]: the bytes each token stands for
//! - [`detokenizer`]: ids → text as they arrive, never half a character
//! - [`stop`]: stop strings across token boundaries

pub mod detokenizer;
pub mod gguf;
pub mod pieces;
pub mod stop;
pub mod tokenizer;

pub use detokenizer::Detokenizer;
pub use pieces::Pieces;
pub use stop::StopStrings;
pub use tokenizer::{LoadError, Tokenizer};
