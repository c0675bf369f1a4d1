//! Everything that was compared, as it stands in the JSON. Times are ms; `null` = not measured.

use std::collections::BTreeMap;

use serde::Serialize;

use super::bootstrap::Moved;

/// Two sets of runs of one load.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Diff {
    /// The load both ran, in words, with its seed.
    pub load: String,
    /// The runs before.
    pub a: SideInfo,
    /// The runs after.
    pub b: SideInfo,
    /// How intervals were made.
    pub method: Method,
    /// TTFT and what it is made of, by statistic (`mean`, `p50`, `p99`); parts and `unexplained` add up
    /// to TTFT at each.
    pub ttft: BTreeMap<&'static str, Breakdown>,
    /// Single figures by name, such as `tpot_p99` or `prefill_mean`: each at its own quantile.
    pub figures: BTreeMap<String, Movement>,
    /// What `--fail-if` asked.
    pub gates: Vec<GateResult>,
}

/// The runs of one side.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct SideInfo {
    /// What they are called.
    pub label: String,
    /// How many.
    pub runs: usize,
    /// Requests in them.
    pub requests: usize,
    /// Requests that did not complete; they are in no movement.
    pub failed: usize,
    /// Whether a run was headed INVALID.
    pub invalid: bool,
}

/// How intervals were made.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Method {
    /// Pairs of requests with a first token on both sides.
    pub pairs: usize,
    /// Pairs per resampled block.
    pub block: usize,
    /// Seed of the resampling.
    pub seed: u64,
    /// In words.
    pub interval: &'static str,
}

/// TTFT at one statistic, and what it is made of there.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Breakdown {
    /// TTFT itself.
    pub ttft: Movement,
    /// The parts and `unexplained`, in order; they add up to TTFT.
    pub segments: Vec<(&'static str, Movement)>,
    /// The wait until the prefill starts, by cause.
    pub causes: Vec<(&'static str, Movement)>,
}

/// How one figure moved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Movement {
    /// Before.
    pub a_ms: f64,
    /// After.
    pub b_ms: f64,
    /// `b − a`.
    pub moved_ms: f64,
    /// Half of its 95 % interval.
    pub half_width_ms: f64,
    /// `moved` in % of `a`; `null` where that is 0.
    pub percent: Option<f64>,
}

/// What became of one `--fail-if`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct GateResult {
    /// As it was written.
    pub fail_if: String,
    /// The figure.
    pub movement: Movement,
    /// The movement that is allowed.
    pub limit_ms: f64,
    /// Whether it was exceeded.
    pub verdict: GateVerdict,
}

/// Where an interval lies to a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum GateVerdict {
    /// All of it below.
    Within,
    /// All of it above.
    Exceeded,
    /// On both sides: more runs would tell.
    Undecided,
}

impl From<Moved> for Movement {
    fn from(m: Moved) -> Self {
        let moved_ms = m.b - m.a;
        let percent = (m.a != 0.0).then(|| 100.0 * moved_ms / m.a);
        Self { a_ms: m.a, b_ms: m.b, moved_ms, half_width_ms: m.half_width, percent }
    }
}

impl Movement {
    /// Whether its interval leaves out 0.
    pub fn is_told_from_noise(&self) -> bool {
        self.moved_ms.abs() > self.half_width_ms
    }
}
