//! Traces over OTLP/gRPC: one trace per request, with a span for each segment, also of the engine's. Off unless
//! `--otlp-endpoint` is given. Never blocks serving: what the bounded queue cannot hold is dropped and counted.
//!
//! - [`traceparent`]: the caller's trace (W3C Trace Context)
//! - [`spans`]: a request's record as spans (pure)
//! - [`export`]: the queue, and the task that empties it

pub mod export;
pub mod spans;
pub mod traceparent;

pub use export::Traces;
pub use traceparent::TraceParent;
