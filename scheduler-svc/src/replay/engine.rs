//! One attachment of an engine in virtual time: what it is sent, its forwards, and what it reports. The planner and
//! the books of KV blocks are the live ones; what surrounds them here does what engine-svc's step loop does.

use firstlight_proto::clock::Stamp;
use firstlight_sim::{
    cost::Cost,
    kv::KvPool,
    planner::{BatchId, End, ForwardKind, ForwardPlan, Limits, NewSequence, Planner, SeqId, Shape},
    replay::VirtualEngine,
    wait::{DecodeFirstClock, EngineWait},
};
use slab::Slab;

use super::request::InEngine;
use crate::admission::{Blocks, EngineLimits, Forward, Geometry, Key, Tokens};

/// What an engine is for its whole life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EngineShape {
    /// What it can hold.
    pub geometry: Geometry,
    /// Prompt and decode rows share one forward per step.
    pub mixed: bool,
}

/// Where the scheduler keeps a request; `key` tells whether the place was taken over by another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub index: usize,
    pub key: Key,
}

/// An attached engine.
#[derive(Debug)]
pub(super) struct Engine<C> {
    machine: VirtualEngine<C>,
    /// Indexed by [`SeqId`].
    seats: Slab<Seat>,
    last_seq: u64,
    running: Option<Running>,
    /// Between two forwards, or waking up.
    turning: bool,
    /// Nothing begins any more.
    draining: bool,
    decode_first: DecodeFirstClock,
    /// Rows for the next report.
    rows: Vec<Row>,
    /// Taken back while a forward runs: like the live loop, cancels are obeyed between forwards.
    cancelled: Vec<Place>,
}

/// A sequence in the engine.
#[derive(Debug)]
struct Seat {
    place: Place,
    received: Stamp,
    decode_first_at_received: i64,
    begun: Option<(Stamp, EngineWait)>,
    own: i64,
}

#[derive(Debug)]
struct Running {
    plan: ForwardPlan,
    start: Stamp,
}

/// A forward that has begun.
#[derive(Debug)]
pub(super) struct Started {
    /// When it ends.
    pub ends: Stamp,
    /// Rounds that begin with it.
    pub begun: Vec<u64>,
}

/// What is reported after a forward, or between two.
#[derive(Debug)]
pub(super) struct Step {
    pub rows: Vec<Row>,
    pub first_tokens: Vec<(Place, InEngine)>,
    pub free_blocks: Blocks,
    pub last_seq: u64,
    pub forward: Option<Forward>,
}

/// A row that produced a token or ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct Row {
    pub place: Place,
    pub token: bool,
    pub end: Option<End>,
}

impl<C: Cost> Engine<C> {
    pub fn new(shape: EngineShape, limits: EngineLimits, cost: C) -> Self {
        let EngineShape { geometry, mixed } = shape;
        let planner_shape = Shape {
            eos_ids: Vec::new(),
            max_sequences: geometry.max_sequences as usize,
            mixed,
            draft_tokens: 0,
        };
        let pool = KvPool::new(geometry.kv_blocks.0 as usize, geometry.block_size.0 as usize);
        let planner = Planner::new(planner_shape, engine_limits(limits), pool);
        Self {
            machine: VirtualEngine::new(planner, cost),
            seats: Slab::new(),
            last_seq: 0,
            running: None,
            turning: false,
            draining: false,
            decode_first: DecodeFirstClock::default(),
            rows: Vec::new(),
            cancelled: Vec::new(),
        }
    }

    pub fn set_limits(&mut self, limits: EngineLimits) {
        self.machine.set_limits(engine_limits(limits));
    }

    pub fn set_cost(&mut self, cost: C) {
        self.machine.set_cost(cost);
    }

    /// Blocks that sequences hold.
    pub fn blocks_held(&self) -> usize {
        let kv = self.machine.planner().kv();
        kv.total() - kv.free()
    }

    /// Round `seq` reached the engine; what is to be reported at once.
    pub fn admit(&mut self, now: Stamp, seq: u64, batch: Vec<(Place, NewSequence)>) -> Option<Step> {
        let at_received = self.decode_first.at(now.ns());
        let seats = &mut self.seats;
        let batch = batch.into_iter().map(|(place, new)| {
            let seat =
                Seat { place, received: now, decode_first_at_received: at_received, begun: None, own: 0 };
            (SeqId(seats.insert(seat) as u32), new)
        });
        self.machine.admit(BatchId(seq), batch);
        self.hand_back()
    }

    /// Begins nothing from now on; what is to be reported at once.
    pub fn drain(&mut self) -> Option<Step> {
        self.draining = true;
        self.hand_back()
    }

    /// A request is taken back; what is to be reported at once.
    pub fn cancel(&mut self, place: Place) -> Option<Step> {
        if self.running.is_some() {
            self.cancelled.push(place);
            return None;
        }
        self.forget(place).then(|| self.report(None, Vec::new()))
    }

    /// A message has come; whether it stood still. It starts no forward before [`turned`](Self::turned) then.
    pub fn rouse(&mut self) -> bool {
        let stood = self.running.is_none() && !self.turning;
        self.turning |= stood;
        stood
    }

    /// It is ready for its next forward.
    pub fn turned(&mut self) {
        self.turning = false;
    }

    /// Starts the next forward, if it is free and there is something to run.
    pub fn start(&mut self, now: Stamp) -> Option<Started> {
        if self.turning {
            return None;
        }
        let firstlight_sim::replay::Started { plan, ends } = self.machine.start(now.ns())?;
        for &id in &plan.preempted {
            self.leave(id, false, End::Preempted);
        }
        for row in plan.rows.iter().filter(|row| row.begins) {
            let at_begun = self.decode_first.at(now.ns());
            let seat = &mut self.seats[row.id.0 as usize];
            let (received, at_received) = (seat.received.ns(), seat.decode_first_at_received);
            seat.begun = Some((now, EngineWait::split(received, now.ns(), at_received, at_begun)));
        }
        let begun: Vec<u64> = plan.begun.iter().map(|batch| batch.0).collect();
        self.last_seq = begun.last().copied().unwrap_or(self.last_seq);
        self.running = Some(Running { plan, start: now });
        Some(Started { ends: Stamp::from_ns(ends), begun })
    }

    /// Ends the running forward. No other starts before [`turned`](Self::turned).
    pub fn finish(&mut self) -> Option<Step> {
        self.turning = true;
        let Running { plan, start } = self.running.take()?;
        let (ends, outcomes) = self.machine.finish(&plan)?;
        self.rows.reserve(outcomes.len());
        let end = Stamp::from_ns(ends);
        if plan.kind == ForwardKind::Decode && self.machine.planner().limits().decode_first {
            self.decode_first.ran(start.ns(), ends);
        }
        for row in plan.rows.iter().filter(|row| row.prompt) {
            if let Some(seat) = self.seats.get_mut(row.id.0 as usize) {
                seat.own += end.since(start);
            }
        }
        let mut first_tokens = Vec::new();
        for outcome in outcomes {
            let seat = &self.seats[outcome.id.0 as usize];
            if let (true, Some((admitted, wait))) = (outcome.first, seat.begun) {
                let (received, prefill_own) = (seat.received, seat.own);
                let way = InEngine { received, admitted, wait, prefill_own, first_token: end };
                first_tokens.push((seat.place, way));
            }
            match outcome.end {
                Some(end) => self.leave(outcome.id, true, end),
                None => self.rows.push(Row { place: seat.place, token: true, end: None }),
            }
        }
        for place in std::mem::take(&mut self.cancelled) {
            self.forget(place);
        }
        self.leave_unbegun();
        let rows = || plan.rows.iter();
        let forward = (!plan.rows.is_empty()).then(|| Forward {
            start,
            end,
            prefill_tokens: Tokens(plan.prefill_tokens() as u32),
            decode_rows: rows().filter(|row| !row.prompt).count() as u32,
        });
        Some(self.report(forward, first_tokens))
    }

    /// Takes a sequence out, wherever it is; `false` when it is not here (any more).
    fn forget(&mut self, place: Place) -> bool {
        let Some((index, _)) = self.seats.iter().find(|(_, seat)| seat.place == place) else { return false };
        let id = SeqId(index as u32);
        self.machine.cancel(id);
        self.leave(id, false, End::Cancelled);
        true
    }

    /// See [`leave_unbegun`](Self::leave_unbegun); like cancels, between forwards.
    fn hand_back(&mut self) -> Option<Step> {
        if self.running.is_some() || !self.leave_unbegun() {
            return None;
        }
        Some(self.report(None, Vec::new()))
    }

    /// While draining, ends what has not begun, as the live loop does; whether there was any.
    fn leave_unbegun(&mut self) -> bool {
        if !self.draining {
            return false;
        }
        let unbegun = self.seats.iter().filter(|(_, seat)| seat.begun.is_none());
        let unbegun: Vec<_> = unbegun.map(|(i, _)| SeqId(i as u32)).collect();
        for &id in &unbegun {
            self.machine.cancel(id);
            self.leave(id, false, End::Preempted);
        }
        !unbegun.is_empty()
    }

    fn leave(&mut self, id: SeqId, token: bool, end: End) {
        let seat = self.seats.remove(id.0 as usize);
        self.rows.push(Row { place: seat.place, token, end: Some(end) });
    }

    fn report(&mut self, forward: Option<Forward>, first_tokens: Vec<(Place, InEngine)>) -> Step {
        Step {
            rows: std::mem::take(&mut self.rows),
            first_tokens,
            free_blocks: Blocks(self.machine.planner().free_to_promise() as u32),
            last_seq: self.last_seq,
            forward,
        }
    }
}

fn engine_limits(limits: EngineLimits) -> Limits {
    Limits {
        max_batch_size: limits.max_batch_size as usize,
        step_prefill_tokens: limits.step_prefill_tokens.0 as usize,
        decode_first: limits.decode_first,
    }
}
