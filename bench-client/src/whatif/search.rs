//! The best budget for an objective: one knob after the other is set to its best value, until none helps any more.

use std::cmp::Ordering;

use firstlight_proto::v1;
use serde_json::{Value, json};

use super::{
    budgets,
    figures::Figures,
    model::Model,
    replay::{Scenario, replay},
};

/// Rounds over all knobs at most.
const ROUNDS: usize = 4;
/// A change has to better a tie in goodput by this share of TTFT's p99.
const WORTHWHILE: f64 = 0.01;

/// What the search has found.
#[derive(Clone, Debug)]
pub struct Found {
    /// The change to make; empty when nothing is better.
    pub change: v1::Budget,
    /// Budgets tried.
    pub tried: usize,
}

/// Searches from `base` on; `scenario`'s own budget is not looked at.
///
/// # Errors
/// When `base` is out of range.
pub fn search(scenario: Scenario<'_>, base: &v1::Budget, model: &Model) -> anyhow::Result<Found> {
    let mut found = Found { change: v1::Budget::default(), tried: 0 };
    let mut judge = |change: &v1::Budget| -> anyhow::Result<Figures> {
        found.tried += 1;
        let budget = budgets::apply(base, change)?;
        Ok(replay(Scenario { budget: &budget, ..scenario }, model.cost.clone(), model.wire)?)
    };
    let mut best = judge(&found.change)?;
    for _ in 0..ROUNDS {
        let before = found.change.clone();
        for (knob, values) in knobs(scenario.engines.iter().any(|engine| engine.mixed)) {
            for value in values {
                let one =
                    serde_json::from_value(json!({ knob: value })).expect("a knob is a field of the budget");
                let change = budgets::merged(&found.change, &one);
                if change == found.change {
                    continue;
                }
                let told = judge(&change)?;
                if better(&told, &best).is_gt() {
                    (best, found.change) = (told, change);
                }
            }
        }
        if found.change == before {
            break;
        }
    }
    // What is as it was is no change.
    let was = budgets::set(base);
    let mut change = budgets::set(&found.change);
    change.retain(|name, value| was.get(name) != Some(value));
    found.change = serde_json::from_value(Value::Object(change)).expect("fields of a budget make a budget");
    Ok(found)
}

/// More goodput; at equal goodput, a p99 of TTFT that is worth the change.
fn better(new: &Figures, old: &Figures) -> Ordering {
    let goodput = |figures: &Figures| figures.get("goodput_percent").copied().unwrap_or(0.0);
    let tail = |figures: &Figures| figures.get("ttft_p99_ms").copied().unwrap_or(f64::INFINITY);
    goodput(new).total_cmp(&goodput(old)).then_with(|| {
        let worthwhile = tail(new) < tail(old) * (1.0 - WORTHWHILE);
        if worthwhile { Ordering::Greater } else { Ordering::Less }
    })
}

/// What may be changed, and to what. An engine with mixed forwards has no order of prefill and decode to choose.
fn knobs(mixed: bool) -> Vec<(&'static str, Vec<Value>)> {
    let powers = |from: u32, to: u32| (from..=to).map(|i| json!(1_u32 << i)).collect::<Vec<_>>();
    let mut knobs = vec![
        ("prefill_max_batch_size", powers(0, 8)),
        ("max_active_requests", powers(2, 10)),
        ("step_prefill_tokens", powers(5, 13)),
        ("prefill_max_tokens", powers(5, 13)),
        ("max_batch_size", powers(3, 9)),
        ("admit_ahead", powers(0, 2)),
        ("policy", vec![json!("fifo"), json!("pack"), json!("adaptive")]),
    ];
    if !mixed {
        knobs.push(("decode_first", vec![json!(false), json!(true)]));
    }
    knobs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_knob_is_a_field_of_the_budget_and_within_its_range() {
        for (knob, values) in knobs(false) {
            for value in values {
                let change: v1::Budget = serde_json::from_value(json!({ knob: value.clone() })).unwrap();
                budgets::apply(&v1::Budget::default(), &change)
                    .unwrap_or_else(|e| panic!("{knob} {value}: {e}"));
            }
        }
    }

    #[test]
    fn goodput_counts_first_and_a_tie_must_be_worth_a_change() {
        let figures = |goodput: f64, tail: f64| -> Figures {
            [("goodput_percent".to_owned(), goodput), ("ttft_p99_ms".to_owned(), tail)].into()
        };
        assert!(better(&figures(51.0, 900.0), &figures(50.0, 100.0)).is_gt());
        assert!(better(&figures(50.0, 90.0), &figures(50.0, 100.0)).is_gt());
        assert!(better(&figures(50.0, 99.5), &figures(50.0, 100.0)).is_lt());
    }
}
