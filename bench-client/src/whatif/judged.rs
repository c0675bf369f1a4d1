//! Predictions beside what live runs measured. A prediction is inside when it is off by no more than a tenth of what
//! was measured, or than live runs differ among themselves.

use serde_json::{Value, json};

use super::{
    figures::Figures,
    predict::{Interval, Prediction},
    verify::{Spread, spread},
};

/// Share of the measured mean by which a prediction may always be off.
const TOLERANCE: f64 = 0.10;

/// Figures of the table, and whether they are judged.
const FIGURES: [(&str, &str, bool); 7] = [
    ("ttft_mean_ms", "TTFT mean", false),
    ("ttft_p50_ms", "TTFT p50", true),
    ("ttft_p99_ms", "TTFT p99", true),
    ("queue_wait_mean_ms", "Queue wait mean", false),
    ("queue_wait_p50_ms", "Queue wait p50", true),
    ("queue_wait_p99_ms", "Queue wait p99", true),
    ("itl_p99_ms", "ITL p99", false),
];

/// What the verdict of a table means.
pub const RULE: &str = "p50 and p99 of TTFT and queue wait of budgets that were not recorded; inside: off by at most \
                        the larger of 10 % of the mean and the greatest less the least of the live runs";

/// A figure, predicted and measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Judged {
    /// Its name.
    pub name: &'static str,
    /// Its name for people.
    pub label: &'static str,
    /// What was predicted.
    pub predicted: Interval,
    /// What live runs measured.
    pub measured: Spread,
    /// By how much the prediction may be off; `None` when it is shown and not judged.
    pub allowed: Option<f64>,
}

impl Judged {
    /// All figures that were both predicted and measured.
    pub fn all(predicted: &Prediction, live: &[Figures]) -> Vec<Self> {
        let one = |(name, label, judged): (&'static str, &'static str, bool)| {
            let (predicted, measured) = (*predicted.get(name)?, spread(live, name)?);
            let allowed =
                judged.then(|| (TOLERANCE * measured.mean).max(measured.range.1 - measured.range.0));
            Some(Self { name, label, predicted, measured, allowed })
        };
        FIGURES.into_iter().filter_map(one).collect()
    }

    /// Predicted less measured.
    pub fn off(&self) -> f64 {
        self.predicted.value - self.measured.mean
    }

    /// The verdict, where there is one.
    pub fn inside(&self) -> Option<bool> {
        self.allowed.map(|allowed| self.off().abs() <= allowed)
    }

    /// A line of the table.
    pub fn line(&self) -> String {
        let Spread { mean, range: (least, greatest) } = self.measured;
        let percent = |of: f64| 100.0 * of / mean;
        let verdict = match (self.inside(), self.allowed) {
            (Some(inside), Some(allowed)) => {
                let word = if inside { "inside" } else { "OUTSIDE" };
                format!("  ±{:>5.1} %  {word}", percent(allowed))
            }
            _ => String::new(),
        };
        let measured = format!("{mean:.1} ({least:.1} to {greatest:.1})");
        let (label, predicted) = (self.label, self.predicted.words());
        format!("  {label:<16}{predicted:>27}{measured:>27}{:>8.1} %{verdict}\n", percent(self.off()))
    }

    /// For programs.
    pub fn json(&self) -> Value {
        json!({
            "figure": self.name,
            "predicted": self.predicted,
            "measured": self.measured.mean,
            "least": self.measured.range.0,
            "greatest": self.measured.range.1,
            "allowed": self.allowed,
            "inside": self.inside(),
        })
    }
}

/// How many of those judged are inside, and how many are judged.
pub fn count<'a>(judged: impl IntoIterator<Item = &'a Judged>) -> (usize, usize) {
    let verdicts: Vec<bool> = judged.into_iter().filter_map(Judged::inside).collect();
    (verdicts.iter().filter(|inside| **inside).count(), verdicts.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(predicted: f64, live: &[f64]) -> Vec<Judged> {
        let name = "ttft_p50_ms".to_owned();
        let predicted =
            [(name.clone(), Interval { value: predicted, low: predicted, high: predicted })].into();
        let live: Vec<Figures> = live.iter().map(|ms| [(name.clone(), *ms)].into()).collect();
        Judged::all(&predicted, &live)
    }

    #[test]
    fn a_tenth_of_what_was_measured_is_always_allowed() {
        assert_eq!(judged(109.0, &[100.0, 100.0])[0].inside(), Some(true));
        assert_eq!(judged(111.0, &[100.0, 100.0])[0].inside(), Some(false));
    }

    #[test]
    fn so_is_what_live_runs_differ_by_among_themselves() {
        assert_eq!(judged(125.0, &[90.0, 110.0, 100.0])[0].inside(), Some(false));
        assert_eq!(judged(119.0, &[90.0, 110.0, 100.0])[0].inside(), Some(true));
        assert_eq!(count(&judged(119.0, &[90.0, 110.0])), (1, 1));
        assert_eq!(count(&judged(200.0, &[90.0, 110.0])), (0, 1));
    }
}
