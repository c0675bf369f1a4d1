//! What the two services have in common around their work.
//!
//! - [`logging`]: structured logs on stderr
//! - [`shutdown`]: SIGTERM and Ctrl-C: drain first, stop at the second
//! - [`health`]: the `healthcheck` subcommand, and reflection of the wire contract
//! - [`metrics`]: metrics declared with name, unit, help and buckets together

pub mod health;
pub mod logging;
pub mod metrics;
pub mod shutdown;
