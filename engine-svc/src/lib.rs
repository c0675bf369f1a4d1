//! Firstlight engine: token ids in, token ids out, over one Attach stream per scheduler
//!
//! - [`cli`]: flags and environment variables
//! - [`load`]: from flags to a backend with its model loaded
//! - [`service`]: the engine on the network
//! - [`step`]: the loop that runs forwards and publishes what they bring
//! - [`backend`]: what executes the model; `cpu` is behind the feature `torch`
//! - [`model`]: GPT-2 and the Llama family, written once over the operations of a device
//! - [`weights`]: GGUF files, Hugging Face folders, random ones
//! - [`sample`]: which token follows
//! - [`metrics`]: every metric, declared in one place

pub mod backend;
pub mod cli;
pub mod load;
pub mod metrics;
pub mod model;
pub mod sample;
pub mod service;
pub mod step;
pub mod weights;
