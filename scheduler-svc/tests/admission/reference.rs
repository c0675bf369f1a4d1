//! For any course of events the core decides and charges what the plain model does, to the nanosecond.

use std::{collections::HashMap, time::Duration};

use super::model::{Model, ModelRound, Place};
use firstlight_proto::clock::Stamp;
use proptest::prelude::*;
use scheduler_svc::admission::{
    Admission, Blocks, Budget, Cause, Class, End, EngineId, Geometry, Key, KvPromise, Policy, Report,
    Request, RequestState, Row, Step, Tenant, Tokens,
};

/// Unit of time, ns: deadlines of a course lie up to 2 s apart.
const UNIT: u64 = 10_000_019;

/// One event; times in units, numbers are reduced to what exists when it happens.
#[derive(Clone, Debug)]
enum Event {
    Pass { units: u16 },
    Offer { prompt: u8, max_new: u8, class: u8, tenant: u8, due_in: Option<u16> },
    Withdraw { which: u16 },
    Attach { kv_blocks: u8, context: u8, max_sequences: u8 },
    Lose { which: u8 },
    Drain { which: u8 },
    Begin { which: u8 },
    Reject { which: u16 },
    Step { which: u8, rows: Vec<(u16, u8, u8)>, free: u8, behind: u8 },
    SetBudget(Box<Budget>),
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        8 => (0_u16..50).prop_map(|units| Event::Pass { units }),
        1 => (0_u16..2_000).prop_map(|units| Event::Pass { units }),
        10 => (1_u8..60, 1_u8..40, 0_u8..3, 0_u8..3, proptest::option::of(0_u16..200)).prop_map(
            |(prompt, max_new, class, tenant, due_in)| Event::Offer { prompt, max_new, class, tenant, due_in }
        ),
        2 => any::<u16>().prop_map(|which| Event::Withdraw { which }),
        2 => (1_u8..40, 60_u8..120, 1_u8..12).prop_map(|(kv_blocks, context, max_sequences)| Event::Attach {
            kv_blocks,
            context,
            max_sequences
        }),
        1 => any::<u8>().prop_map(|which| Event::Lose { which }),
        1 => any::<u8>().prop_map(|which| Event::Drain { which }),
        6 => any::<u8>().prop_map(|which| Event::Begin { which }),
        1 => any::<u16>().prop_map(|which| Event::Reject { which }),
        6 => (any::<u8>(), proptest::collection::vec((any::<u16>(), 0_u8..3, 0_u8..8), 0..4), any::<u8>(), 0_u8..3)
            .prop_map(|(which, rows, free, behind)| Event::Step { which, rows, free, behind }),
        1 => budget().prop_map(|budget| Event::SetBudget(Box::new(budget))),
    ]
}

fn budget() -> impl Strategy<Value = Budget> {
    let limits = (1_u32..6, 10_u32..120, 1_u32..10, 3_u32..20, proptest::option::of(4_u32..30), 1_u32..3);
    let policy = (0_usize..6, 1_u32..8, 0_u32..5, 0_u64..100, any::<bool>(), 1_u32..20);
    let weights = (1_u32..5, 1_u32..5, 0_u64..40);
    (limits, policy, weights).prop_map(|(limits, policy, weights)| Budget {
        prefill_max_batch_size: limits.0,
        prefill_max_tokens: Tokens(limits.1),
        max_active_requests: limits.2,
        max_pending: limits.3,
        kv_blocks: limits.4.map(Blocks),
        admit_ahead: limits.5,
        policy: Policy::ALL[policy.0],
        lookahead: policy.1,
        force_fifo_every: policy.2,
        max_overtaking_age: units_of(policy.3),
        kv_promise: if policy.4 { KvPromise::Reserve } else { KvPromise::Optimistic },
        kv_margin: Tokens(policy.5),
        class_weights: [(Class(1), weights.0), (Class(2), weights.1)].into(),
        aging: units_of(weights.2),
        ..Budget::default()
    })
}

fn units_of(units: u64) -> Duration {
    Duration::from_nanos(units * UNIT)
}

/// The core and the model side by side.
struct Pair {
    core: Admission,
    model: Model,
    keys: Vec<Key>,
    numbers: HashMap<Key, usize>,
    attached: Vec<(EngineId, u64)>,
    next_engine: u64,
}

impl Pair {
    fn new(budget: Budget) -> Self {
        Self {
            core: Admission::new(budget.clone(), Stamp::from_ns(0)).unwrap(),
            model: Model::new(budget, 0),
            keys: Vec::new(),
            numbers: HashMap::new(),
            attached: Vec::new(),
            next_engine: 1,
        }
    }

    fn now(&self) -> Stamp {
        Stamp::from_ns(self.model.now)
    }

    fn happen(&mut self, event: Event) {
        let now = self.now();
        match event {
            Event::Pass { units } => self.model.advance(i64::from(units) * UNIT as i64),
            Event::Offer { prompt, max_new, class, tenant, due_in } => {
                let request = Request {
                    class: Class(class.into()),
                    tenant: Tenant(tenant.into()),
                    deadline: due_in.map(|units| now + units_of(units.into())),
                    ..Request::new(Tokens(prompt.into()), Tokens(max_new.into()))
                };
                let queued = self.core.offer(now, request);
                let number = self.model.offer(request);
                assert_eq!(queued.is_ok(), number.is_some(), "the door: {queued:?}");
                if let (Ok(queued), Some(number)) = (queued, number) {
                    self.keys.push(queued.key);
                    self.numbers.insert(queued.key, number);
                }
            }
            Event::Withdraw { which } => {
                if !self.keys.is_empty() {
                    let number = usize::from(which) % self.keys.len();
                    self.core.withdraw(now, self.keys[number]);
                    self.model.withdraw(number);
                }
            }
            Event::Attach { kv_blocks, context, max_sequences } => {
                if self.attached.len() < 4 {
                    let engine = EngineId(self.next_engine);
                    self.next_engine += 1;
                    let blocks = Blocks(kv_blocks.into());
                    let geometry = Geometry {
                        context: Tokens(context.into()),
                        block_size: Tokens(4),
                        kv_blocks: blocks,
                        free_blocks: blocks,
                        max_sequences: max_sequences.into(),
                    };
                    self.attached.push((engine, 0));
                    self.report(Report::Attached { engine, geometry });
                }
            }
            Event::Lose { which } => {
                if let Some(at) = self.some_engine(which) {
                    let (engine, _) = self.attached.remove(at);
                    self.report(Report::Lost { engine });
                }
            }
            Event::Drain { which } => {
                if let Some(at) = self.some_engine(which) {
                    let (engine, _) = self.attached[at];
                    self.report(Report::Draining { engine });
                }
            }
            Event::Begin { which } => {
                if let Some(at) = self.some_engine(which) {
                    let (engine, seq) = self.attached[at];
                    self.report(Report::Begun { engine, seq });
                }
            }
            Event::Reject { which } => {
                let active = self.model.active();
                if !active.is_empty() {
                    let key = self.keys[active[usize::from(which) % active.len()]];
                    self.report(Report::Rejected { key });
                }
            }
            Event::Step { which, rows, free, behind } => self.step(which, rows, free, behind),
            Event::SetBudget(budget) => {
                self.core.set_budget(now, (*budget).clone()).unwrap();
                self.model.set_budget(*budget);
            }
        }
        self.plan();
    }

    fn some_engine(&self, which: u8) -> Option<usize> {
        (!self.attached.is_empty()).then(|| usize::from(which) % self.attached.len())
    }

    fn step(&mut self, which: u8, rows: Vec<(u16, u8, u8)>, free: u8, behind: u8) {
        let Some(at) = self.some_engine(which) else { return };
        let (engine, seq) = self.attached[at];
        let on_it = |r: &usize| matches!(self.model.requests[*r].place, Place::Active { engine: e, .. } if e == engine);
        let mut active: Vec<usize> = self.model.active().into_iter().filter(on_it).collect();
        let mut reported = Vec::new();
        for (which, tokens, end) in rows {
            if active.is_empty() {
                break;
            }
            let number = active.remove(usize::from(which) % active.len());
            let end = match end {
                0..4 => None,
                4 => Some(End::Preempted),
                _ => Some(End::Finished),
            };
            reported.push(Row { key: self.keys[number], tokens: Tokens(tokens.into()), end });
        }
        self.report(Report::Step(Step {
            engine,
            rows: reported,
            free_blocks: Blocks(free.into()),
            last_seq: seq.saturating_sub(behind.into()),
            forward: None,
        }));
    }

    fn report(&mut self, report: Report) {
        let now = self.now();
        self.model.observe(&report, |key| self.numbers[&key]);
        self.core.observe(now, report);
    }

    fn plan(&mut self) {
        let now = self.now();
        loop {
            let round = self.core.plan(now);
            let expected = self.model.plan();
            let got = round.as_ref().map(|round| ModelRound {
                engine: round.engine,
                seq: round.seq,
                batch: round.batch.iter().map(|admitted| self.numbers[&admitted.key]).collect(),
                bound_by: round.bound_by,
            });
            assert_eq!(got, expected, "the round");
            let Some(round) = round else { break };
            for admitted in &round.batch {
                let number = self.numbers[&admitted.key];
                assert_eq!(admitted.generated.0, self.model.requests[number].generated);
                self.check_wait(number, &admitted.waited);
            }
            let of = self.attached.iter_mut().find(|(engine, _)| *engine == round.engine);
            of.expect("rounds go to attached engines").1 = round.seq;
        }
        let away: Vec<_> = self.core.turn_away(now);
        self.model.turn_away_late();
        let mut numbers: Vec<_> = away.iter().map(|away| self.numbers[&away.key]).collect();
        let mut expected = std::mem::take(&mut self.model.turned_away);
        numbers.sort();
        expected.sort();
        assert_eq!(numbers, expected, "turned away");
        away.iter().for_each(|away| self.check_wait(self.numbers[&away.key], &away.waited));
        self.check();
    }

    fn check(&self) {
        let now = self.now();
        for (number, key) in self.keys.iter().enumerate() {
            let waited = self.core.waited(now, *key);
            let pending = self.model.requests[number].place == Place::Pending;
            assert_eq!(waited.is_some(), pending);
            let Some(waited) = waited else { continue };
            self.check_wait(number, &waited);
        }
        let gauges = self.core.gauges(now);
        assert_eq!(gauges.pending, self.model.pending().len());
        assert_eq!(gauges.active as usize, self.model.active().len());
        for (cause, ns) in gauges.blocked.iter() {
            let expected = self.model.blocked.get(&cause).copied().unwrap_or_default();
            assert_eq!(ns, expected as u128, "blocked by {cause:?}");
        }
        assert!(!self.core.liveness().should_admit(), "planning left someone who could be admitted");
    }

    fn check_wait(&self, number: usize, waited: &scheduler_svc::admission::Waited) {
        let expected = &self.model.requests[number];
        for (cause, ns) in waited.by_cause.iter() {
            let stopwatch = expected.by_cause.get(&cause).copied().unwrap_or_default();
            assert_eq!(ns, stopwatch, "{cause:?} of request {number}");
        }
        assert_eq!(waited.behind, expected.behind, "behind of request {number}");
        assert_eq!((waited.engine_lost, waited.preempted), (expected.engine_lost, expected.preempted));
    }

    /// Explanations of requests that were neither lost nor moved to other lanes are complete and agree with
    /// the ledger, cause by cause.
    fn check_explanations(&self, policy_changed: bool) {
        let now = self.now();
        for (number, key) in self.keys.iter().enumerate() {
            let explanation = self.core.explain(now, *key).expect("recent");
            let request = &self.model.requests[number];
            assert_eq!(explanation.state == RequestState::Pending, request.place == Place::Pending);
            if !explanation.lost.is_empty() {
                continue;
            }
            assert!(explanation.complete || policy_changed);
            if explanation.complete && !policy_changed {
                for cause in Cause::ALL {
                    let periods = explanation.periods.iter().filter(|period| period.cause == cause);
                    let explained: i64 = periods.map(|period| period.to.since(period.from)).sum();
                    let stopwatch = request.by_cause.get(&cause).copied().unwrap_or_default();
                    assert_eq!(explained, stopwatch, "{cause:?} of request {number}");
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_core_does_what_the_plain_model_does(
        budget in budget(),
        events in proptest::collection::vec(event(), 1..150),
    ) {
        let mut pair = Pair::new(budget);
        pair.happen(Event::Attach { kv_blocks: 30, context: 100, max_sequences: 8 });
        let mut policy_changed = false;
        for event in events {
            if let Event::SetBudget(budget) = &event {
                policy_changed |= budget.policy != pair.model.budget.policy;
            }
            pair.happen(event);
        }
        pair.check_explanations(policy_changed);
    }
}
