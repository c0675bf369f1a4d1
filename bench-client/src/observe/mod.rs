//! What the services under load tell about themselves while the client makes load.
//!
//! - [`spans`]: spans by request id, as they arrive
//! - [`watch`]: the streams that bring them
//! - [`clocks`]: clock probes of the scheduler and the engines
//! - [`prometheus`]: what a service exports
//! - [`server_metrics`]: a peer's own view of its TTFT
//! - [`lease`]: the budget of a run, restored whatever happens

pub mod clocks;
pub mod lease;
pub mod prometheus;
pub mod server_metrics;
pub mod spans;
pub mod watch;

pub use clocks::ClockMap;
pub use spans::SpanStore;
