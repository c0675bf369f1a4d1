//! What all three programs share: the wire contract, stamps and clocks, the error table, and the
//! shell of a service (flags, logs, shutdown, health, metrics).
//!
//! - [`v1`]: generated messages and services of `firstlight/v1/*.proto`
//! - [`clock`]: the one way to read time; [`clock::Stamp`] and its arithmetic
//! - [`domain`]: where a stamp is valid
//! - [`error`]: every failure a caller can see, and its gRPC, HTTP and metrics form
//! - [`cause`]: why a request waited, for people and labels
//! - [`inject`]: known delays at the hand-overs between segments, and losses, to test the breakdown by truth
//! - [`offset`]: how far another process's clock is from ours, and how sure that is
//! - [`vocabulary`]: whether two processes mean the same tokens
//! - [`serve`]: what the two services have in common around their work

pub mod cause;
pub mod clock;
pub mod domain;
pub mod error;
pub mod inject;
pub mod offset;
pub mod serve;
pub mod vocabulary;

/// Generated from `firstlight/v1/*.proto`; documented there, field by field.
#[allow(missing_docs, clippy::all)]
pub mod v1 {
    tonic::include_proto!("firstlight.v1");
}

/// The encoded descriptor set of all protos, for gRPC reflection.
pub const DESCRIPTOR_SET: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/firstlight_descriptor.bin"));
