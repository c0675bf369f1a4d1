//! The chain of segments as runs of `bench-client` tell it.

use serde_json::Value;

/// What TTFT is made of.
pub const SEGMENTS: [&str; 10] = [
    "client_lag",
    "ingress",
    "accept",
    "queue_wait",
    "dispatch",
    "engine_wait",
    "prefill",
    "return",
    "deliver",
    "lost",
];

/// Hand-overs, each with the process that delays it (`--inject-delay`).
pub const HANDOVERS: [(&str, Owner); 9] = [
    ("client_lag", Owner::Client),
    ("ingress", Owner::Scheduler),
    ("accept", Owner::Scheduler),
    ("queue_wait", Owner::Scheduler),
    ("dispatch", Owner::Scheduler),
    ("engine_wait", Owner::Engine),
    ("prefill", Owner::Engine),
    ("return", Owner::Engine),
    ("deliver", Owner::Scheduler),
];

/// A process of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// `bench-client`.
    Client,
    /// `scheduler-svc`.
    Scheduler,
    /// `engine-svc`.
    Engine,
}

/// A segment's median in a run's results, ms.
///
/// # Panics
/// When the run does not tell it.
pub fn median(run: &Value, segment: &str) -> f64 {
    number(run, &format!("/segments/{segment}/p50_ms"))
}

/// The number at `path` of a run's results.
///
/// # Panics
/// When there is none.
pub fn number(run: &Value, path: &str) -> f64 {
    run.pointer(path).and_then(Value::as_f64).unwrap_or_else(|| panic!("{path} is no number in the results"))
}
