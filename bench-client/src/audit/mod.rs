//! Conservation: what the client counted and timed must agree with what the services' own metrics say.
//! A breakdown can be wrong in a way that still adds up; it cannot be wrong and also balance with counters
//! and gauges that were kept elsewhere. The load must be the only traffic while it runs.
//!
//! - [`ledgers`]: the balances (pure)
//! - [`gauges`]: a gauge sampled over the run, for Little's law
//! - [`watch`]: scrapes before, during and after

pub mod gauges;
pub mod ledgers;
pub mod watch;

use serde::{Deserialize, Serialize};

/// The outcome of an audit.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Audit {
    /// Every balance that was drawn.
    pub checks: Vec<Check>,
}

impl Audit {
    /// The balances that do not agree.
    pub fn disagreements(&self) -> impl Iterator<Item = &Check> {
        self.checks.iter().filter(|c| !c.agrees())
    }
}

/// Two ledgers that must agree.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Check {
    /// What is counted or timed.
    pub what: String,
    /// Who keeps the first ledger, and its figure.
    pub left: (String, f64),
    /// Who keeps the second, and its figure.
    pub right: (String, f64),
    /// How far they may be apart.
    pub tolerance: f64,
}

impl Check {
    /// Whether the two are within the tolerance of each other.
    pub fn agrees(&self) -> bool {
        (self.left.1 - self.right.1).abs() <= self.tolerance
    }
}
