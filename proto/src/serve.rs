//! What the two services have in common around their work.
//!
//! - [`exit`]: exit codes and last words
//! - [`logging`]: structured logs on stderr
//! - [`memory`]: the allocator, and how long it keeps what is freed
//! - [`shutdown`]: SIGTERM and Ctrl-C: drain first, stop at the second
//! - [`health`]: the `healthcheck` subcommand, and reflection of the wire contract
//! - [`metrics`]: metrics declared with name, unit, help and buckets together
//! - [`recorder`]: where they go, and the page that is scraped
//! - [`histogram`]: histograms, counted where they are observed
//! - [`spans`]: spans as they happen, to whoever watches
//! - [`listen`], [`dial`], [`tls`]: both ends of a connection, in the clear or over (mutual) TLS

pub mod dial;
pub mod exit;
pub mod health;
pub mod histogram;
pub mod listen;
pub mod logging;
pub mod memory;
pub mod metrics;
pub mod recorder;
pub mod shutdown;
pub mod spans;
pub mod tls;
