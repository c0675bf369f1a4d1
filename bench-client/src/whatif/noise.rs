//! Costs with the noise that was measured: each forward takes what the model tells times a ratio that a recorded
//! forward of its kind had. Ratios are drawn in blocks of neighbours, since what slows one forward slows the next.

use std::{sync::Arc, time::Duration};

use firstlight_sim::cost::{Cost, CostModel, Load};

use crate::load::random::Random;

/// Neighbours that are drawn together.
pub const BLOCK: usize = 16;

/// A cost model with noise around it; the same seed gives the same noise.
#[derive(Clone, Debug)]
pub struct Noisy {
    cost: CostModel,
    prefill: Ratios,
    decode: Ratios,
    random: Random,
}

#[derive(Clone, Debug)]
struct Ratios {
    recorded: Arc<[f64]>,
    next: usize,
    left: usize,
}

impl Noisy {
    /// `cost` with ratios of time taken to time told, in the order they were recorded, by kind.
    pub fn new(cost: CostModel, prefill: Arc<[f64]>, decode: Arc<[f64]>, random: Random) -> Self {
        let ratios = |recorded| Ratios { recorded, next: 0, left: 0 };
        Self { cost, prefill: ratios(prefill), decode: ratios(decode), random }
    }
}

impl Cost for Noisy {
    fn next(&mut self, load: Load) -> Duration {
        let ratios = if load.prefill_rows > 0 { &mut self.prefill } else { &mut self.decode };
        self.cost.forward(load).mul_f64(ratios.draw(&mut self.random))
    }
}

impl Ratios {
    fn draw(&mut self, random: &mut Random) -> f64 {
        let n = self.recorded.len();
        if n == 0 {
            return 1.0;
        }
        if self.left == 0 {
            self.next = random.between(0, n as u64 - 1) as usize;
            self.left = BLOCK;
        }
        let ratio = self.recorded[self.next % n];
        (self.next, self.left) = (self.next + 1, self.left - 1);
        ratio
    }
}
