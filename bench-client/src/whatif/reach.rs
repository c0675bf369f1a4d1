//! How far costs reach: the largest forwards that they were fitted to, and how much of a replay lies beyond them.

use std::{cell::Cell, rc::Rc, time::Duration};

use firstlight_sim::{
    cost::{Cost, Load},
    fit::Observed,
};

/// A forward so many times as large as any that was recorded is beyond them.
const MARGIN: f64 = 1.25;

/// The largest forwards that were recorded, by kind: those that held prompt rows, and the others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reach {
    /// Of those that held prompt rows.
    pub prefill: Load,
    /// Of the others.
    pub decode: Load,
}

impl Reach {
    /// The reach of these forwards.
    pub fn of<'a>(forwards: impl IntoIterator<Item = &'a Observed>) -> Self {
        let mut reach = Self::default();
        for forward in forwards {
            let largest = if forward.prefills() { &mut reach.prefill } else { &mut reach.decode };
            largest.prefill_rows = largest.prefill_rows.max(forward.load.prefill_rows);
            largest.prefill_tokens = largest.prefill_tokens.max(forward.load.prefill_tokens);
            largest.decode_rows = largest.decode_rows.max(forward.load.decode_rows);
            largest.attended = largest.attended.max(forward.load.attended);
        }
        reach
    }

    /// Whether forwards about as large were recorded.
    pub fn holds(&self, load: Load) -> bool {
        let largest = if load.prefill_rows > 0 { self.prefill } else { self.decode };
        let within = |size: usize, largest: usize| size as f64 <= MARGIN * largest as f64;
        within(load.prefill_rows, largest.prefill_rows)
            && within(load.prefill_tokens, largest.prefill_tokens)
            && within(load.decode_rows, largest.decode_rows)
            && within(load.attended, largest.attended)
    }
}

/// Costs that add up how much of the time forwards take is told beyond their reach. Copies add to one sum.
#[derive(Clone, Debug)]
pub struct Measured<C> {
    cost: C,
    reach: Reach,
    spent: Rc<Cell<Spent>>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Spent {
    all: Duration,
    beyond: Duration,
}

impl<C> Measured<C> {
    /// `cost` with nothing added up yet.
    pub fn new(cost: C, reach: Reach) -> Self {
        Self { cost, reach, spent: Rc::default() }
    }

    /// Of the time that forwards took so far, what was beyond reach, in percent.
    pub fn percent_beyond(&self) -> f64 {
        let Spent { all, beyond } = self.spent.get();
        if all.is_zero() { 0.0 } else { 100.0 * beyond.div_duration_f64(all) }
    }
}

impl<C: Cost> Cost for Measured<C> {
    fn next(&mut self, load: Load) -> Duration {
        let took = self.cost.next(load);
        let mut spent = self.spent.get();
        spent.all += took;
        if !self.reach.holds(load) {
            spent.beyond += took;
        }
        self.spent.set(spent);
        took
    }
}

#[cfg(test)]
mod tests {
    use firstlight_sim::cost::CostModel;

    use super::*;

    fn load(rows: usize, prompt: bool) -> Load {
        let mut load = Load::default();
        (0..rows).for_each(|_| load.add(0, if prompt { 8 } else { 1 }, prompt));
        load
    }

    fn reach() -> Reach {
        let forward = |load| Observed { load, bucket: 0, took: Duration::from_millis(1) };
        Reach::of(&[forward(load(4, true)), forward(load(2, true)), forward(load(32, false))])
    }

    #[test]
    fn a_forward_is_beyond_reach_when_none_of_its_kind_was_nearly_as_large() {
        let reach = reach();
        assert!(reach.holds(load(5, true)), "a quarter more is near enough");
        assert!(!reach.holds(load(6, true)));
        assert!(reach.holds(load(40, false)) && !reach.holds(load(41, false)));
        let mut long = Load::default();
        long.add(0, 33, true);
        assert!(!reach.holds(long), "few chunks, but longer ones");
    }

    #[test]
    fn copies_add_to_one_sum() {
        let cost = CostModel { prefill_base_us: 1000.0, prefill_row_us: 0.0, ..CostModel::default() };
        let cost = CostModel { prefill_token_us: 0.0, prefill_attend_us: 0.0, ..cost };
        let mut here = Measured::new(cost, reach());
        assert_eq!(here.percent_beyond(), 0.0);
        let mut there = here.clone();
        for rows in [4, 4, 4, 64] {
            there.next(load(rows, true));
        }
        assert_eq!(here.percent_beyond(), 25.0);
        here.next(load(64, true));
        assert_eq!(there.percent_beyond(), 40.0);
    }
}
