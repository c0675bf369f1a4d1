//! The engine on the network: the Attach stream, probes, spans, health and reflection.
//!
//! - [`server`]: one listener with every service, from "live" to "drained"
//! - [`attach`]: a scheduler's stream: decode, stamp, check, hand to the step loop
//! - [`validate`]: which sequences can run here, and why not
//! - [`stream`]: the way back: probes first, then what the step loop publishes
//! - [`telemetry`]: ProbeClock and WatchSpans
//! - [`delay`]: known delays, for tests of the breakdown

pub mod attach;
pub mod delay;
pub mod server;
pub mod stream;
pub mod telemetry;
pub mod validate;
