//! Many replays of one scenario, each at costs that might have been fitted and with the noise that was measured:
//! every figure with the interval that this leaves.

use std::collections::BTreeMap;

use scheduler_svc::admission::BudgetError;
use serde::Serialize;

use super::{
    figures::Figures,
    model::Model,
    replay::{Scenario, replay},
};

/// A predicted figure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Interval {
    /// Mean over replays, as a figure of live runs is their mean.
    pub value: f64,
    /// 5th percentile over replays.
    pub low: f64,
    /// 95th percentile over replays.
    pub high: f64,
}

impl Interval {
    /// In words: `160.1 (150.1 to 204.6)`.
    pub fn words(&self) -> String {
        let Self { value, low, high } = self;
        if low == high { format!("{value:.1}") } else { format!("{value:.1} ({low:.1} to {high:.1})") }
    }
}

/// Predicted figures by name.
pub type Prediction = BTreeMap<String, Interval>;

/// Replays `scenario` so many times, at least once. The same model gives the same prediction.
///
/// # Errors
/// When the budget is out of range.
pub fn predict(scenario: Scenario<'_>, model: &Model, replays: u32) -> Result<Prediction, BudgetError> {
    let told: Vec<Figures> = (0..replays.max(1))
        .map(u64::from)
        .map(|seed| replay(scenario, model.draw(seed), model.draw_wire(seed)))
        .collect::<Result<_, _>>()?;
    let mut by_name: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    for (name, value) in told.iter().flatten() {
        by_name.entry(name.clone()).or_default().push(*value);
    }
    Ok(by_name.into_iter().map(|(name, values)| (name, interval(values, told.len()))).collect())
}

/// A figure that a replay lacks is 0 there: a cause that did not occur.
fn interval(mut values: Vec<f64>, replays: usize) -> Interval {
    values.resize(replays, 0.0);
    let value = values.iter().sum::<f64>() / values.len() as f64;
    values.sort_by(f64::total_cmp);
    let at = |q: f64| {
        let place = q * (values.len() - 1) as f64;
        let (below, above) = (values[place.floor() as usize], values[place.ceil() as usize]);
        below + (above - below) * place.fract()
    };
    Interval { value, low: at(0.05), high: at(0.95) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_leaves_out_a_twentieth_on_each_side() {
        let interval = interval((0..=100).rev().map(f64::from).collect(), 101);
        assert_eq!(interval, Interval { value: 50.0, low: 5.0, high: 95.0 });
    }

    #[test]
    fn a_cause_that_some_replays_lack_is_zero_there() {
        let Interval { value, low, high } = interval(vec![4.0], 3);
        assert_eq!((value, low), (4.0 / 3.0, 0.0));
        assert!((high - 3.6).abs() < 1e-9, "nine tenths of the way from 0 to 4: {high}");
    }
}
