//! The scheduler's side of a replay. Per event: take it in, then let the core plan with the same `now`, as
//! [`dispatch`](crate::dispatch) does per message.

use std::time::Duration;

use firstlight_proto::clock::Stamp;
use firstlight_sim::{cost::Cost, planner};
use rustc_hash::FxHashMap;
use slab::Slab;

use super::{
    engine::{Engine, EngineShape, Place, Step},
    events::Events,
    messages::{Down, Event, Stream, Up},
    request::{Arrival, Ending, Story},
    wire::{HandOvers, Wire},
};
use crate::admission::{
    self, Admission, Budget, BudgetError, End, EngineId, EngineLimits, Key, Loss, Refused, Report, Requeued,
    Round, Tokens, Withdrawn,
};

/// Sees what happens in a replay, as it happens.
pub trait Observer {
    /// A round was sent.
    fn round(&mut self, _round: &Round) {}
    /// A token came; `gap` is the time since the request's token before it, ns.
    fn token(&mut self, _story: &Story, _gap: Option<i64>) {}
    /// A request that was queued has ended.
    fn ended(&mut self, story: &Story);
}

/// The pair in virtual time.
#[derive(Debug)]
pub struct World<C, O, W = Wire> {
    core: Admission,
    wire: W,
    cost: C,
    observer: O,
    now: Stamp,
    events: Events<Event>,
    /// By attachment id, from 1.
    engines: Vec<Option<Engine<C>>>,
    /// Its stream, likewise.
    streams: Vec<Stream>,
    live: Slab<Live>,
    by_key: FxHashMap<Key, usize>,
    limits: EngineLimits,
}

/// A request in flight.
#[derive(Debug)]
struct Live {
    arrival: Arrival,
    story: Story,
}

impl<C: Cost + Clone, O: Observer, W: HandOvers> World<C, O, W> {
    /// A world without engines whose clock shows `now`. Every engine gets its own copy of `cost`.
    ///
    /// # Errors
    /// When the budget is out of range.
    pub fn new(budget: Budget, wire: W, cost: C, observer: O, now: Stamp) -> Result<Self, BudgetError> {
        let core = Admission::new(budget, now)?;
        Ok(Self {
            limits: core.engine_limits(),
            core,
            wire,
            cost,
            observer,
            now,
            events: Events::default(),
            engines: Vec::new(),
            streams: Vec::new(),
            live: Slab::new(),
            by_key: FxHashMap::default(),
        })
    }

    /// What the clock shows.
    pub fn now(&self) -> Stamp {
        self.now
    }

    /// The core, to look at.
    pub fn core(&self) -> &Admission {
        &self.core
    }

    /// Who sees what happens.
    pub fn observer(&self) -> &O {
        &self.observer
    }

    /// See [`observer`](Self::observer).
    pub fn observer_mut(&mut self) -> &mut O {
        &mut self.observer
    }

    /// Ends the replay.
    pub fn into_observer(self) -> O {
        self.observer
    }

    /// Requests pending or active.
    pub fn in_flight(&self) -> usize {
        self.live.len()
    }

    /// Whether a request is pending or active.
    pub fn is_in_flight(&self, key: Key) -> bool {
        self.by_key.contains_key(&key)
    }

    /// KV blocks that sequences hold on an engine; 0 when it is gone.
    pub fn blocks_held(&self, id: EngineId) -> usize {
        self.engines.get(index(id)).and_then(Option::as_ref).map_or(0, Engine::blocks_held)
    }

    /// A new attachment.
    pub fn attach(&mut self, shape: EngineShape) -> EngineId {
        self.engines.push(Some(Engine::new(shape, self.core.engine_limits(), self.cost.clone())));
        self.streams.push(Stream::new(self.now));
        let engine = EngineId(self.engines.len() as u64);
        let requeued = self.core.observe(self.now, Report::Attached { engine, geometry: shape.geometry });
        self.requeue(&requeued);
        self.plan();
        engine
    }

    /// The scheduler hears that an engine drains: it is sent no more rounds, hands back what it has not begun and
    /// finishes the rest.
    pub fn drain(&mut self, id: EngineId) {
        self.core.observe(self.now, Report::Draining { engine: id });
        let handed_back = self.engines.get_mut(index(id)).and_then(Option::as_mut).and_then(Engine::drain);
        self.report(id, handed_back);
        self.plan();
    }

    /// An attachment ends with all it holds.
    pub fn lose(&mut self, engine: EngineId) {
        if let Some(place) = self.engines.get_mut(index(engine)) {
            *place = None;
        }
        let requeued = self.core.observe(self.now, Report::Lost { engine });
        self.requeue(&requeued);
        self.plan();
    }

    /// A request at the door, now.
    ///
    /// # Errors
    /// When the core refuses it; it is not queued then.
    pub fn offer(&mut self, arrival: Arrival) -> Result<Key, Refused> {
        let request = arrival.request;
        let key = self.core.offer(self.now, request)?.key;
        self.by_key.insert(key, self.live.insert(Live { arrival, story: Story::new(key, self.now) }));
        if let Some(deadline) = request.deadline {
            self.events.at(deadline, Event::Deadline(key));
        }
        self.plan();
        Ok(key)
    }

    /// The client takes a request back, now.
    pub fn withdraw(&mut self, key: Key) {
        self.end(key, Ending::Withdrawn);
        self.plan();
    }

    /// A request turns out to end after `output` tokens (a stop string, an end-of-sequence token).
    pub fn end_after(&mut self, key: Key, output: Tokens) {
        let Some(live) = self.by_key.get(&key).map(|index| &mut self.live[*index]) else { return };
        live.arrival.output = live.arrival.output.min(output);
        if live.story.tokens >= live.arrival.output {
            self.end(key, Ending::Finished);
            self.plan();
        }
    }

    /// Puts another budget in force.
    ///
    /// # Errors
    /// When it is out of range; nothing changes then.
    pub fn set_budget(&mut self, budget: Budget) -> Result<(), BudgetError> {
        self.core.set_budget(self.now, budget)?;
        self.plan();
        Ok(())
    }

    /// Other costs from every engine's next forward on.
    pub fn set_cost(&mut self, cost: C) {
        for engine in self.engines.iter_mut().flatten() {
            engine.set_cost(cost.clone());
        }
        self.cost = cost;
    }

    /// Other delays from now on.
    pub fn set_wire(&mut self, wire: W) {
        self.wire = wire;
    }

    /// Lets time pass until `until`; all that happens by then has happened.
    pub fn run_until(&mut self, until: Stamp) {
        while let Some(at) = self.next_at().filter(|at| *at <= until) {
            self.now = self.now.max(at);
            match self.events.take(self.now) {
                Some(event) => self.happen(event),
                None => self.plan(),
            }
        }
        self.now = self.now.max(until);
    }

    /// Lets time pass until nothing lies ahead.
    pub fn run_out(&mut self) {
        while let Some(at) = self.next_at() {
            self.run_until(at);
        }
    }

    fn next_at(&self) -> Option<Stamp> {
        [self.events.next_at(), self.core.next_expiry()].into_iter().flatten().min()
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Down(id, message) => self.reach_engine(id, message),
            Event::ForwardEnds(id) => {
                let Some(engine) = self.engines[index(id)].as_mut() else { return };
                let step = engine.finish();
                self.report(id, step);
                let turnaround = self.wire.turnaround();
                self.turn_after(id, turnaround);
            }
            Event::Turn(id) => self.turn(id),
            Event::Up(id, message) => self.reach_scheduler(id, message),
            Event::Deadline(key) => {
                self.end(key, Ending::DeadlinePassed);
                self.plan();
            }
        }
    }

    fn reach_engine(&mut self, id: EngineId, message: Down) {
        let Some(engine) = self.engines[index(id)].as_mut() else { return };
        let step = match message {
            Down::Admit { seq, batch } => {
                let live = &self.live;
                let batch = batch.into_iter().filter_map(|place| {
                    let live = live.get(place.index).filter(|live| live.story.key == place.key)?;
                    Some((place, live.arrival.sequence(live.story.tokens)))
                });
                engine.admit(self.now, seq, batch.collect())
            }
            Down::Cancel(place) => engine.cancel(place),
            Down::SetLimits(limits) => {
                engine.set_limits(limits);
                None
            }
        };
        self.report(id, step);
        if self.engines[index(id)].as_mut().is_some_and(Engine::rouse) {
            let wake = self.wire.wake();
            self.turn_after(id, wake);
        }
    }

    /// The engine starts its next forward in a while.
    fn turn_after(&mut self, id: EngineId, after: Duration) {
        if after.is_zero() {
            self.turn(id);
        } else {
            self.events.at(self.now + after, Event::Turn(id));
        }
    }

    fn turn(&mut self, id: EngineId) {
        if let Some(engine) = self.engines[index(id)].as_mut() {
            engine.turned();
        }
        self.start(id);
    }

    /// Starts an engine's next forward if it is free and has work.
    fn start(&mut self, id: EngineId) {
        let Some(engine) = self.engines[index(id)].as_mut() else { return };
        let Some(started) = engine.start(self.now) else { return };
        if !started.begun.is_empty() {
            let begun = self.wire.begun();
            started.begun.into_iter().for_each(|seq| self.say(id, Up::Begun(seq), begun));
        }
        self.events.at(started.ends, Event::ForwardEnds(id));
    }

    fn report(&mut self, id: EngineId, step: Option<Step>) {
        if let Some(step) = step {
            let back = self.wire.back();
            self.say(id, Up::Step(Box::new(step)), back);
        }
    }

    fn say(&mut self, id: EngineId, message: Up, after: Duration) {
        let at = self.streams[index(id)].up(self.now + after);
        self.events.at(at, Event::Up(id, message));
    }

    fn send(&mut self, id: EngineId, message: Down) {
        let dispatch = self.wire.dispatch();
        let at = self.streams[index(id)].down(self.now + dispatch);
        self.events.at(at, Event::Down(id, message));
    }

    fn reach_scheduler(&mut self, id: EngineId, message: Up) {
        if self.engines[index(id)].is_none() {
            return;
        }
        match message {
            Up::Begun(seq) => {
                self.core.observe(self.now, Report::Begun { engine: id, seq });
            }
            Up::Step(step) => self.step(id, *step),
        }
        self.plan();
    }

    fn step(&mut self, engine: EngineId, step: Step) {
        let Step { rows: reported, first_tokens, free_blocks, last_seq, forward } = step;
        for (place, way) in first_tokens {
            if let Some(live) = at(&mut self.live, place) {
                live.story.engine.get_or_insert(way);
            }
        }
        let mut rows = Vec::with_capacity(reported.len());
        let mut ended = Vec::new();
        for row in reported {
            let end = row.end.map(|end| match end {
                planner::End::Preempted => End::Preempted,
                _ => End::Finished,
            });
            rows.push(admission::Row { key: row.place.key, tokens: Tokens(row.token.into()), end });
            let Some(live) = at(&mut self.live, row.place) else { continue };
            if row.token {
                let gap = live.story.token(self.now);
                self.observer.token(&live.story, gap);
            }
            if end == Some(End::Finished) || live.story.tokens >= live.arrival.output {
                ended.push(row.place.key);
            }
        }
        let report = admission::Step { engine, rows, free_blocks, last_seq, forward };
        let requeued = self.core.observe(self.now, Report::Step(report));
        self.requeue(&requeued);
        for key in ended {
            self.end(key, Ending::Finished);
        }
    }

    fn requeue(&mut self, requeued: &[Requeued]) {
        for Requeued { key, why, .. } in requeued {
            let Some(index) = self.by_key.get(key) else { continue };
            let story = &mut self.live[*index].story;
            match why {
                Loss::EngineLost => story.lost += 1,
                Loss::Preempted => story.preempted += 1,
            }
        }
    }

    /// Ends a request wherever it is.
    fn end(&mut self, key: Key, ending: Ending) {
        let Some(index) = self.by_key.remove(&key) else { return };
        let mut live = self.live.remove(index);
        match self.core.withdraw(self.now, key) {
            Withdrawn::Pending(waited) if live.story.first_token.is_none() => live.story.waited = waited,
            Withdrawn::Active(engine) => self.send(engine, Down::Cancel(Place { index, key })),
            Withdrawn::Pending(_) | Withdrawn::Unknown => {}
        }
        live.story.end = Some((self.now, ending));
        self.observer.ended(&live.story);
    }

    fn plan(&mut self) {
        while let Some(round) = self.core.plan(self.now) {
            self.observer.round(&round);
            self.admit(&round);
        }
        for away in self.core.turn_away(self.now) {
            let Some(index) = self.by_key.remove(&away.key) else { continue };
            let mut live = self.live.remove(index);
            if live.story.first_token.is_none() {
                live.story.waited = away.waited;
            }
            live.story.end = Some((self.now, Ending::TurnedAway(away.why)));
            self.observer.ended(&live.story);
        }
        let limits = self.core.engine_limits();
        if limits.version != self.limits.version {
            self.limits = limits;
            let attached =
                |(i, engine): (usize, &Option<_>)| engine.is_some().then(|| EngineId(i as u64 + 1));
            for id in self.engines.iter().enumerate().filter_map(attached).collect::<Vec<_>>() {
                self.send(id, Down::SetLimits(limits));
            }
        }
    }

    fn admit(&mut self, round: &Round) {
        let mut batch = Vec::with_capacity(round.batch.len());
        for admitted in &round.batch {
            let Some(&index) = self.by_key.get(&admitted.key) else { continue };
            let story = &mut self.live[index].story;
            if story.first_token.is_none() {
                story.admitted = Some(round.at);
                story.waited = admitted.waited;
            }
            batch.push(Place { index, key: admitted.key });
        }
        self.send(round.engine, Down::Admit { seq: round.seq, batch });
    }
}

/// The request at a place, unless it has left.
fn at(live: &mut Slab<Live>, place: Place) -> Option<&mut Live> {
    live.get_mut(place.index).filter(|live| live.story.key == place.key)
}

/// Where an attachment lies.
fn index(id: EngineId) -> usize {
    id.0 as usize - 1
}
