//! The engine in virtual time: the live planner with the cost model in place of a backend. Whoever drives it says
//! what time it is, so that a replay decides when requests arrive.

use crate::{
    cost::{Cost, CostModel, Load},
    planner::{BatchId, ForwardPlan, Limits, NewSequence, Outcome, Planner, SeqId},
};

/// A token that no sequence ends on.
const TOKEN: u32 = 0;

/// An engine without a clock. Times are ns of the replay.
#[derive(Debug)]
pub struct VirtualEngine<C = CostModel> {
    planner: Planner,
    cost: C,
    /// Which forward of the step comes next.
    turn: usize,
    /// When the running forward ends.
    running: Option<i64>,
    /// What it samples; kept for its memory.
    sampled: Vec<Option<u32>>,
}

/// A forward that has begun. Its plan is handed back when it [ends](VirtualEngine::finish).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Started {
    /// Its rows, the batches that begin with it, and who gave way for it.
    pub plan: ForwardPlan,
    /// When it ends, ns.
    pub ends: i64,
}

impl<C: Cost> VirtualEngine<C> {
    /// An engine that runs `planner` at the speed of `cost`. Sequences end by length only: give the planner's shape
    /// no EOS ids.
    pub fn new(planner: Planner, cost: C) -> Self {
        Self { planner, cost, turn: 0, running: None, sampled: Vec::new() }
    }

    /// A batch arrives in the inbox.
    pub fn admit(&mut self, id: BatchId, batch: impl IntoIterator<Item = (SeqId, NewSequence)>) {
        self.planner.admit(id, batch);
    }

    /// A sequence is cancelled; one that is in the running forward is forgotten at once.
    pub fn cancel(&mut self, id: SeqId) -> bool {
        self.planner.cancel(id)
    }

    /// Other limits from the next forward on.
    pub fn set_limits(&mut self, limits: Limits) {
        self.planner.set_limits(limits);
    }

    /// Other costs from the next forward on.
    pub fn set_cost(&mut self, cost: C) {
        self.cost = cost;
    }

    /// The planner, to look at.
    pub fn planner(&self) -> &Planner {
        &self.planner
    }

    /// Starts the next forward at `now`, if none is running and there is something to run.
    pub fn start(&mut self, now: i64) -> Option<Started> {
        if self.running.is_some() {
            return None;
        }
        let step = self.planner.step();
        let next = (0..step.len()).find_map(|_| {
            let kind = step[self.turn % step.len()];
            self.turn += 1;
            self.planner.plan(kind, &|_| true)
        });
        let Some(plan) = next else {
            // An idle engine wakes at the start of a step.
            self.turn = 0;
            return None;
        };
        let took = self.cost.next(Load::from(&plan));
        let ends = now + i64::try_from(took.as_nanos()).unwrap_or(i64::MAX);
        self.running = Some(ends);
        Some(Started { plan, ends })
    }

    /// Ends the running forward, which is `plan`: the rows that got a token, and when. `None` when none is running.
    pub fn finish(&mut self, plan: &ForwardPlan) -> Option<(i64, Vec<Outcome>)> {
        let ends = self.running.take()?;
        self.sampled.clear();
        self.sampled.extend(plan.rows.iter().map(|row| row.samples.then_some(TOKEN)));
        Some((ends, self.planner.complete(plan, &self.sampled)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        kv::KvPool,
        planner::{End, ForwardKind, Shape},
    };

    const BASE_NS: i64 = 1_000_000;

    fn engine(decode_first: bool) -> VirtualEngine {
        let shape = Shape { eos_ids: vec![], max_sequences: 100, mixed: false, draft_tokens: 0 };
        let limits = Limits { max_batch_size: 8, step_prefill_tokens: 64, decode_first };
        let us = BASE_NS as f64 / 1e3;
        let cost = CostModel {
            prefill_base_us: us,
            prefill_row_us: 0.0,
            prefill_token_us: 0.0,
            decode_base_us: us,
            decode_row_us: 0.0,
            prefill_attend_us: 0.0,
            decode_attend_us: 0.0,
            ..CostModel::default()
        };
        VirtualEngine::new(Planner::new(shape, limits, KvPool::new(100, 16)), cost)
    }

    fn sequence(first: u32, max_new_tokens: usize) -> NewSequence {
        NewSequence {
            tokens: (first..first + 20).collect(),
            max_new_tokens,
            stop_token_ids: vec![],
            ignore_eos: true,
            prefix_cache: true,
        }
    }

    #[test]
    fn time_passes_only_in_forwards() {
        let mut engine = engine(false);
        assert_eq!(engine.start(5), None);
        engine.admit(BatchId(1), [(SeqId(0), sequence(1, 3))]);
        let mut now = 5;
        let mut last = None;
        while let Some(started) = engine.start(now) {
            assert_eq!(started.ends, now + BASE_NS);
            assert_eq!(engine.start(now), None, "one forward at a time");
            let (ends, outcomes) = engine.finish(&started.plan).unwrap();
            now = ends;
            last = outcomes[0].end;
        }
        assert_eq!((now, last), (5 + 3 * BASE_NS, Some(End::Length)));
    }

    #[test]
    fn prefill_and_decode_take_turns_in_the_order_of_the_budget() {
        for decode_first in [false, true] {
            let mut engine = engine(decode_first);
            engine.admit(BatchId(1), [(SeqId(0), sequence(1, 100))]);
            // To the end of the first step, which holds a decode forward only where it comes last.
            for _ in 0..if decode_first { 1 } else { 2 } {
                let started = engine.start(0).unwrap();
                engine.finish(&started.plan).unwrap();
            }
            engine.admit(BatchId(2), (1..6).map(|i| (SeqId(i), sequence(100 * i, 100))));
            let kinds: Vec<_> = std::iter::from_fn(|| {
                let started = engine.start(0)?;
                engine.finish(&started.plan);
                Some(started.plan.kind)
            })
            .take(4)
            .collect();
            let turns =
                [ForwardKind::Decode, ForwardKind::Prefill, ForwardKind::Decode, ForwardKind::Prefill];
            let start = usize::from(!decode_first);
            assert_eq!(kinds[..3], turns[start..start + 3]);
        }
    }
}
