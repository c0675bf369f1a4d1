//! Costs with the noise that was measured: each forward takes what the model tells times a ratio that a recorded
//! forward of its kind had. Ratios are drawn in blocks of neighbours, since what slows one forward slows the next.
//! Each hand-over takes what some recorded one took.

use std::{sync::Arc, time::Duration};

use firstlight_sim::cost::{Cost, CostModel, Load};
use scheduler_svc::replay::HandOvers;

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

/// Hand-overs with the noise that was measured; the same seed gives the same.
#[derive(Clone, Debug)]
pub struct NoisyWire {
    recorded: Arc<Recorded>,
    random: Random,
}

/// Times that hand-overs took; where there is none of a kind it takes no time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recorded {
    /// See [`HandOvers::dispatch`].
    pub dispatch: Vec<Duration>,
    /// See [`HandOvers::wake`].
    pub wake: Vec<Duration>,
    /// See [`HandOvers::begun`].
    pub begun: Vec<Duration>,
    /// See [`HandOvers::back`].
    pub back: Vec<Duration>,
    /// See [`HandOvers::turnaround`].
    pub turnaround: Vec<Duration>,
}

impl NoisyWire {
    /// Draws from `recorded`.
    pub fn new(recorded: Arc<Recorded>, random: Random) -> Self {
        Self { recorded, random }
    }

    fn draw(&mut self, of: fn(&Recorded) -> &[Duration]) -> Duration {
        match of(&self.recorded) {
            [] => Duration::ZERO,
            times => times[self.random.between(0, times.len() as u64 - 1) as usize],
        }
    }
}

impl HandOvers for NoisyWire {
    fn dispatch(&mut self) -> Duration {
        self.draw(|recorded| &recorded.dispatch)
    }

    fn wake(&mut self) -> Duration {
        self.draw(|recorded| &recorded.wake)
    }

    fn begun(&mut self) -> Duration {
        self.draw(|recorded| &recorded.begun)
    }

    fn back(&mut self) -> Duration {
        self.draw(|recorded| &recorded.back)
    }

    fn turnaround(&mut self) -> Duration {
        self.draw(|recorded| &recorded.turnaround)
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
