//! gRPC for clients and operators.
//!
//! - [`inference`]: `Generate` and `GetModel`
//! - [`validate`]: every field of a request, checked (pure)
//! - [`tokenize`]: prompts → token ids, long ones off the async threads
//! - [`token_stream`]: tokens → the messages of one response
//! - [`admin`]: the budget and its lease, on a loopback listener of its own
//! - [`observe`]: clock probes and spans
//! - [`health`]: live, ready, draining

pub mod admin;
pub mod health;
pub mod inference;
pub mod observe;
pub mod token_stream;
pub mod tokenize;
pub mod validate;
