//! Firstlight engine: token ids in, token ids out, over one Attach stream per scheduler
//!
//! * [`backend`]: what executes the model; `cpu` is behind the feature `torch`
//! * [`model`]: GPT-2 and the Llama family, written once
//! * [`weights`]: GGUF files, Hugging Face folders, dummies
//! * [`sample`]: which token follows

pub mod backend;
pub mod model;
pub mod sample;
pub mod weights;
