//! A measured point.

use serde::{Deserialize, Serialize};

use super::axis::{self, Setting};
use crate::report::Results;

/// What was measured at some settings; one line of the sweep's file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// All other flags of the sweep: points of other sweeps do not mix.
    pub sweep: String,
    /// The flags that vary.
    pub settings: Vec<Setting>,
    /// Everything that was measured.
    pub results: Results,
}

impl Point {
    /// Requests per second that met the objectives; completed ones where there are none.
    pub fn goodput(&self) -> f64 {
        let met = self.results.goodput.as_ref().map(|g| g.requests_per_s);
        met.unwrap_or(self.results.throughput.requests_per_s).unwrap_or(0.0)
    }

    /// The load, where it varies.
    pub fn load(&self) -> Option<&Setting> {
        self.settings.iter().find(|s| axis::is_load(&s.flag))
    }

    /// The settings in words, without the load.
    pub fn budget_words(&self) -> String {
        let budget = self.settings.iter().filter(|s| !axis::is_load(&s.flag));
        budget.map(ToString::to_string).collect::<Vec<_>>().join(", ")
    }
}

/// Settings in words.
pub fn words(settings: &[Setting]) -> String {
    settings.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}
