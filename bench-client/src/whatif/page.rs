//! The page a person reads, and the JSON a program reads.

use firstlight_proto::{cause, v1};
use firstlight_sim::{cost::CostModel, fit::Quality};
use serde_json::{Value, json};

use super::{
    budgets,
    figures::{self, BEYOND_REACH, Figures, of_cause},
    judged::{self, Judged},
    model::Model,
    predict::{Interval, Prediction},
};

/// All that is told.
#[derive(Clone, Debug)]
pub struct Report {
    /// The costs.
    pub model: Model,
    /// The budget that was in force.
    pub base: v1::Budget,
    /// What the recording measured; `None` of a trace.
    pub measured: Option<Figures>,
    /// The recorded budget, then the others.
    pub budgets: Vec<Tried>,
    /// What has to be known to trust it.
    pub notes: Vec<String>,
}

/// A budget and what it would do.
#[derive(Clone, Debug)]
pub struct Tried {
    /// The change to the recorded budget; empty for that budget itself.
    pub change: v1::Budget,
    /// What is predicted.
    pub predicted: Prediction,
    /// What live runs under it measured; empty when none was asked for.
    pub live: Vec<Figures>,
}

impl Tried {
    /// What was predicted beside what was measured; nothing without live runs.
    fn judged(&self) -> Vec<Judged> {
        Judged::all(&self.predicted, &self.live)
    }
}

/// Lines of a page, each a figure and its label; causes come after the queue wait.
const FIGURES: [(&str, &str); 16] = [
    ("ttft_mean_ms", "TTFT mean"),
    ("ttft_p50_ms", "TTFT p50"),
    ("ttft_p95_ms", "TTFT p95"),
    ("ttft_p99_ms", "TTFT p99"),
    ("queue_wait_mean_ms", "Queue wait mean"),
    ("queue_wait_p50_ms", "Queue wait p50"),
    ("queue_wait_p99_ms", "Queue wait p99"),
    ("itl_p50_ms", "ITL p50"),
    ("itl_p99_ms", "ITL p99"),
    ("tpot_p50_ms", "TPOT p50"),
    ("latency_p50_ms", "Latency p50"),
    ("latency_p99_ms", "Latency p99"),
    ("output_tokens_per_s", "Tokens/s"),
    ("goodput_percent", "Goodput %"),
    ("failed", "Failed"),
    (BEYOND_REACH, "Beyond recorded %"),
];

impl Report {
    /// For people.
    pub fn text(&self) -> String {
        let mut out = self.costs();
        for note in &self.notes {
            out += &format!("note: {note}\n");
        }
        let recorded = self.budgets.first().map(|tried| &tried.predicted);
        for (i, tried) in self.budgets.iter().enumerate() {
            if i == 0 && self.budgets.len() > 1 {
                continue;
            }
            out += &format!("\nwhat if {}\n", budgets::words(&self.base, &tried.change));
            out += &self.table(recorded.filter(|_| i > 0), &tried.predicted);
        }
        if self.budgets.iter().any(|tried| !tried.live.is_empty()) {
            out += &self.verified();
        }
        out
    }

    fn costs(&self) -> String {
        let CostModel {
            prefill_base_us,
            prefill_row_us,
            prefill_token_us,
            prefill_attend_us,
            decode_base_us,
            decode_row_us,
            decode_attend_us,
            ..
        } = self.model.cost;
        let ms = |us: f64| us / 1e3;
        let quality = |name: &str, q: &Quality| {
            format!(
                "{name:<8}{:>7} forwards   R² {:.3}   error {:.1} %, p95 {:.1} %   ",
                q.forwards,
                q.r2,
                100.0 * q.relative_error,
                100.0 * q.relative_error_p95
            )
        };
        format!(
            "costs, ms\n{}{:.3} + {:.4}/prompt + {:.4}/token + {:.5}/1000 attended\n{}{:.3} + {:.4}/row + {:.5}/1000 \
             attended\n{:<8}{:>7} µs between forwards\n",
            quality("prefill", &self.model.prefill),
            ms(prefill_base_us),
            ms(prefill_row_us),
            ms(prefill_token_us),
            prefill_attend_us,
            quality("decode", &self.model.decode),
            ms(decode_base_us),
            ms(decode_row_us),
            decode_attend_us,
            "engine",
            self.model.wire.turnaround.as_micros(),
        )
    }

    /// Recorded and replayed figures, then those of a budget.
    fn table(&self, recorded: Option<&Prediction>, predicted: &Prediction) -> String {
        let mut out = format!("{:<18}{:>10}{:>27}{:>27}\n", "", "measured", "replayed", "what if");
        let mut line = |name: &str, label: &str| {
            let known = predicted.contains_key(name) || recorded.is_some_and(|r| r.contains_key(name));
            if !known {
                return;
            }
            let measured = self.measured.as_ref().and_then(|figures| figures.get(name));
            let measured = measured.map_or_else(|| "–".to_owned(), |value| format!("{value:.1}"));
            let zero = Interval::default();
            let of = |prediction: &Prediction| prediction.get(name).unwrap_or(&zero).words();
            let (before, after) = match recorded {
                Some(recorded) => (of(recorded), of(predicted)),
                None => (of(predicted), String::new()),
            };
            out += &format!("{label:<18}{measured:>10}{before:>27}{after:>27}\n");
        };
        for (name, label) in FIGURES {
            line(name, label);
            if name == "queue_wait_p99_ms" {
                for cause in cause::ALL {
                    line(&of_cause(cause.label()), &format!("  {}", cause.label()));
                }
            }
        }
        out
    }

    /// Predicted beside measured, a line per budget and figure, and how many of them are inside.
    fn verified(&self) -> String {
        let runs = self.budgets.iter().map(|tried| tried.live.len()).max().unwrap_or(0);
        let measured = format!("measured, {runs} runs");
        let mut out = format!("\n{:<18}{:>27}{measured:>27}{:>10}  allowed\n", "", "predicted", "off");
        for tried in &self.budgets {
            out += &format!("{}\n", budgets::words(&self.base, &tried.change));
            tried.judged().iter().for_each(|judged| out += &judged.line());
        }
        let (inside, of) = self.inside();
        out + &format!("{inside} of {of} inside ({})\n", judged::RULE)
    }

    /// Of the budgets that were not recorded, how many figures are inside, and how many were judged.
    fn inside(&self) -> (usize, usize) {
        judged::count(&self.budgets.iter().skip(1).flat_map(Tried::judged).collect::<Vec<_>>())
    }

    /// For programs.
    pub fn json(&self) -> Value {
        let quality = |q: &Quality| {
            json!({
                "forwards": q.forwards,
                "r2": q.r2,
                "relative_error": q.relative_error,
                "relative_error_p95": q.relative_error_p95,
            })
        };
        let (inside, of) = self.inside();
        let budgets: Vec<Value> = self
            .budgets
            .iter()
            .map(|tried| {
                json!({
                    "change": budgets::set(&tried.change),
                    "budget": budgets::set(&budgets::merged(&self.base, &tried.change)),
                    "predicted": tried.predicted,
                    "live": tried.live.iter().map(figures::to_json).collect::<Vec<_>>(),
                    "judged": tried.judged().iter().map(Judged::json).collect::<Vec<_>>(),
                })
            })
            .collect();
        json!({
            "cost": self.model.cost,
            "turnaround_us": self.model.wire.turnaround.as_micros() as u64,
            "fit": { "prefill": quality(&self.model.prefill), "decode": quality(&self.model.decode) },
            "measured": self.measured.as_ref().map(figures::to_json),
            "budgets": budgets,
            "inside": { "n": inside, "of": of },
            "notes": self.notes,
        })
    }
}
