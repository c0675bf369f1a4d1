//! Firstlight scheduler: pending queue, admission budget, tokens and text, streaming to clients.
//!
//! - [`admission`]: who gets in, when, and why the others wait (pure)
//! - [`dispatch`]: the task that owns the admission core and every request in flight
//! - [`engines`]: links to the engines
//! - [`frontend`]: gRPC for clients and operators
//! - [`replay`]: the core and the engines' planners in virtual time (pure)
//! - [`shadow`]: one other budget, replayed on the live arrivals
//! - [`text`]: text to tokens and back
//! - [`request`], [`record`], [`ended`]: what is asked for, what is stamped of it, and what is left of it at its end
//! - [`telemetry`], [`metrics`], [`otlp`]: what is told about requests
//! - [`watchdog`]: notices from outside when admission is stuck
//! - [`cli`], [`server`]: flags, and the service made of all these parts

pub mod admission;
pub mod cli;
pub mod dispatch;
pub mod ended;
pub mod engines;
pub mod frontend;
pub mod metrics;
pub mod otlp;
pub mod record;
pub mod replay;
pub mod request;
pub mod server;
pub mod shadow;
pub mod telemetry;
pub mod text;
pub mod watchdog;
