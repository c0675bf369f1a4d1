//! Firstlight engine: token ids in, token ids out, over one Attach stream per scheduler
//!
//! - [`cli`]: flags
//! - [`load`]: from flags to a backend with its model loaded
//! - [`service`]: the engine on the network
//! - [`step`]: the loop that runs forwards and publishes what they bring
//! - [`backend`]: what executes the model
//! - [`sample`]: which token follows
//! - [`metrics`]: every metric, declared in one place

pub mod backend;
pub mod cli;
pub mod load;
pub mod metrics;
pub mod sample;
pub mod service;
pub mod step;
