//! What the live engines cost, learnt from their forwards as they end, and forgotten again.

use std::time::Duration;

use firstlight_proto::clock::Stamp;
use firstlight_sim::{
    cost::CostModel,
    fit::{Fitter, Observed},
};
use rustc_hash::FxHashMap;

use super::Ran;
use crate::{admission::EngineId, replay::Wire};

/// Forwards of each kind before there is a model.
const ENOUGH: f64 = 32.0;
/// Forwards between two fits.
const REFIT: u32 = 64;
/// What a forward still counts when the next one of its kind comes: some two thousand are remembered.
const KEEP: f64 = 1.0 - 1.0 / 2048.0;
/// Share of the newest delay in the running mean.
const NEW: f64 = 1.0 / 64.0;

/// Learns costs and delays.
#[derive(Debug, Default)]
pub struct Costs {
    fitter: Fitter,
    cost: Option<CostModel>,
    since_fit: u32,
    error: f64,
    dispatch: f64,
    back: f64,
    turnaround: f64,
    /// End of each engine's last forward, where more is to follow at once.
    busy_since: FxHashMap<EngineId, Stamp>,
}

impl Costs {
    /// Takes in a forward; whether the model has changed.
    pub fn forward(&mut self, engine: EngineId, ran: &Ran) -> bool {
        let took = Duration::from_nanos(u64::try_from(ran.end.since(ran.start)).unwrap_or(0));
        let forward = Observed { load: ran.load, bucket: ran.bucket, took };
        if let Some(end) = self.busy_since.remove(&engine) {
            mean(&mut self.turnaround, ran.start.since(end));
        }
        if ran.goes_on {
            self.busy_since.insert(engine, ran.end);
        }
        let expected = self.cost.as_ref().map(|cost| cost.forward(forward.load));
        if let Some(expected) = expected.filter(|expected| !expected.is_zero()) {
            let off = (forward.took.as_secs_f64() / expected.as_secs_f64() - 1.0).abs();
            self.error += (off - self.error) * NEW;
        }
        self.fitter.add(&forward, expected, KEEP);
        self.since_fit += 1;
        let (prefills, decodes) = self.fitter.weights();
        let due = self.cost.is_none() || self.since_fit >= REFIT;
        if !due || prefills < ENOUGH || decodes < ENOUGH {
            return false;
        }
        self.since_fit = 0;
        self.cost = self.fitter.cost();
        self.cost.is_some()
    }

    /// Takes in how long a round took to its engine, and its first tokens back, ns.
    pub fn hand_overs(&mut self, dispatch: i64, back: i64) {
        mean(&mut self.dispatch, dispatch);
        mean(&mut self.back, back);
    }

    /// An attachment ended.
    pub fn forget(&mut self, engine: EngineId) {
        self.busy_since.remove(&engine);
    }

    /// The cost model, once enough forwards have been seen.
    pub fn cost(&self) -> Option<&CostModel> {
        self.cost.as_ref()
    }

    /// Delays between scheduler and engines, and between forwards.
    pub fn wire(&self) -> Wire {
        let ns = |ns: f64| Duration::from_nanos(ns.max(0.0) as u64);
        let (dispatch, back, turnaround) = (ns(self.dispatch), ns(self.back), ns(self.turnaround));
        Wire { dispatch, begun: back, back, turnaround, ..Wire::default() }
    }

    /// Mean of |took − told| / told over the last forwards.
    pub fn relative_error(&self) -> f64 {
        self.error
    }
}

/// A running mean; one that is 0 takes the first value whole.
fn mean(of: &mut f64, ns: i64) {
    *of = if *of == 0.0 { ns as f64 } else { *of + (ns as f64 - *of) * NEW };
}

#[cfg(test)]
mod tests {
    use firstlight_sim::cost::Load;

    use super::*;

    fn ran(i: u64, cost: &CostModel, start: Stamp) -> Ran {
        let mut load = Load::default();
        (0..1 + i % 8).for_each(|row| load.add(10 * row as usize, 1, i.is_multiple_of(3)));
        Ran { start, end: start + cost.forward(load), load, bucket: load.decode_rows, goes_on: true }
    }

    #[test]
    fn costs_are_learnt_from_forwards_and_followed_when_they_change() {
        let slow = CostModel { buckets: Vec::new(), ..CostModel::default() };
        let fast = CostModel { scale: 0.5, ..slow.clone() };
        let (mut costs, mut now) = (Costs::default(), Stamp::from_ns(0));
        let mut teach = |costs: &mut Costs, truth: &CostModel, n: u64| {
            for i in 0..n {
                let ran = ran(i, truth, now);
                now = ran.end + Duration::from_micros(70);
                costs.forward(EngineId(1), &ran);
            }
        };
        teach(&mut costs, &slow, 20);
        assert_eq!(costs.cost(), None, "too few to say anything");
        let mut load = Load::default();
        (0..5).for_each(|_| load.add(30, 1, false));
        let told = |costs: &Costs| costs.cost().unwrap().forward(load).as_secs_f64();
        teach(&mut costs, &slow, 1_000);
        let was = slow.forward(load).as_secs_f64();
        assert!((told(&costs) / was - 1.0).abs() < 0.01 && costs.relative_error() < 0.01);
        teach(&mut costs, &fast, 20_000);
        assert!((told(&costs) / was - 0.5).abs() < 0.02, "{} of {was}", told(&costs));
        assert_eq!(costs.wire().turnaround, Duration::from_micros(70));
    }
}
