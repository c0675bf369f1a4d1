//! The admission core once more, written as plainly as DESIGN states it: every request carries a
//! stopwatch for each cause, and every step of time visits every request. Slow, and easy to believe.
//!
//! - [`room`]: what is left of each limit, and which engine is next
//! - [`lanes`]: who waits behind whom
//! - [`rounds`]: one round, packed by trying everything

mod lanes;
mod room;
mod rounds;

use std::collections::BTreeMap;

use scheduler_svc::admission::{Budget, Cause, End, EngineId, Geometry, Policy, Report, Request};

/// What the model says a round holds: requests by their number, in order.
#[derive(Debug, PartialEq)]
pub struct ModelRound {
    pub engine: EngineId,
    pub seq: u64,
    pub batch: Vec<usize>,
    pub bound_by: Option<Cause>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Place {
    Pending,
    Active { engine: EngineId, seq: u64, admitted: i64, promised: u32 },
    Gone,
}

/// A request with its stopwatches.
#[derive(Debug)]
pub struct ModelRequest {
    pub request: Request,
    pub place: Place,
    pub generated: u32,
    pub by_cause: BTreeMap<Cause, i64>,
    pub behind: i64,
    pub engine_lost: i64,
    pub preempted: i64,
    arrived: i64,
    preemptions: u32,
    charged: Cause,
    headed: bool,
    /// When it came to the head.
    headed_at: i64,
    withdrawn: bool,
}

#[derive(Debug)]
struct ModelEngine {
    geometry: Geometry,
    free: u32,
    last_seq: u64,
    next_seq: u64,
    begun: u64,
    draining: bool,
}

/// Whose lane: a class, a tenant, or 0.
type LaneName = u32;

#[derive(Debug)]
pub struct Model {
    pub now: i64,
    pub budget: Budget,
    pub requests: Vec<ModelRequest>,
    pub blocked: BTreeMap<Cause, i64>,
    pub turned_away: Vec<usize>,
    lanes: BTreeMap<LaneName, Vec<usize>>,
    engines: BTreeMap<EngineId, ModelEngine>,
    /// Engines that were lost, and when.
    departed: Vec<(Geometry, i64)>,
    /// Requests that wait for one of those.
    aside: Vec<usize>,
    served: BTreeMap<u32, (i64, u64)>,
    floor: i64,
    last_served: Option<u32>,
    turns: u64,
    rounds_since_fifo_turn: u32,
}

impl Model {
    pub fn new(budget: Budget, now: i64) -> Self {
        Self {
            now,
            budget,
            requests: Vec::new(),
            blocked: BTreeMap::new(),
            turned_away: Vec::new(),
            lanes: BTreeMap::new(),
            engines: BTreeMap::new(),
            departed: Vec::new(),
            aside: Vec::new(),
            served: BTreeMap::new(),
            floor: 0,
            last_served: None,
            turns: 0,
            rounds_since_fifo_turn: 0,
        }
    }

    pub fn pending(&self) -> Vec<usize> {
        (0..self.requests.len()).filter(|r| self.requests[*r].place == Place::Pending).collect()
    }

    pub fn active(&self) -> Vec<usize> {
        let active = |r: &usize| matches!(self.requests[*r].place, Place::Active { .. });
        (0..self.requests.len()).filter(active).collect()
    }

    /// Lets time pass: every pending request is charged to its cause.
    pub fn advance(&mut self, ns: i64) {
        self.now += ns;
        for r in self.pending() {
            let request = &mut self.requests[r];
            *request.by_cause.entry(request.charged).or_default() += ns;
            *self.blocked.entry(request.charged).or_default() += ns;
            request.behind += if request.headed { 0 } else { ns };
        }
    }

    /// The number of the request, unless the door refuses it.
    pub fn offer(&mut self, request: Request) -> Option<usize> {
        let refused =
            if self.never_fits(&request) { !self.is_awaited(&request) } else { self.late(&request) };
        if refused || self.pending().len() >= self.budget.max_pending as usize {
            return None;
        }
        let r = self.requests.len();
        self.requests.push(ModelRequest {
            request,
            place: Place::Pending,
            generated: 0,
            by_cause: BTreeMap::new(),
            behind: 0,
            engine_lost: 0,
            preempted: 0,
            arrived: self.now,
            preemptions: 0,
            charged: self.idle(),
            headed: false,
            headed_at: 0,
            withdrawn: false,
        });
        self.join(r, false);
        self.mark_heads();
        Some(r)
    }

    pub fn withdraw(&mut self, r: usize) {
        match self.requests[r].place {
            Place::Pending => self.leave(r),
            Place::Active { .. } => self.requests[r].withdrawn = true,
            Place::Gone => {}
        }
        self.mark_heads();
    }

    /// Takes a report in; `number` finds the request a key names.
    pub fn observe(&mut self, report: &Report, number: impl Fn(scheduler_svc::admission::Key) -> usize) {
        match report {
            Report::Attached { engine, geometry } => {
                let first = !self.any_open();
                let account = ModelEngine {
                    geometry: *geometry,
                    free: geometry.free_blocks.0,
                    last_seq: 0,
                    next_seq: 1,
                    begun: 0,
                    draining: false,
                };
                self.engines.insert(*engine, account);
                if first {
                    self.charge_all(Cause::EngineBusy);
                }
                self.call_back(|model, request| !model.never_fits(request));
            }
            Report::Lost { engine } => {
                let was_open = self.any_open();
                let Some(lost) = self.engines.remove(engine) else { return };
                self.departed.push((lost.geometry, self.now));
                if was_open && !self.any_open() {
                    self.charge_all(Cause::NoEngine);
                }
                self.call_back(|model, request| !model.never_fits(request));
                let on_it = |r: &usize| matches!(self.requests[*r].place, Place::Active { engine: e, .. } if e == *engine);
                let lost: Vec<usize> = self.active().into_iter().filter(on_it).collect();
                lost.into_iter().rev().for_each(|r| self.requeue(r, false));
            }
            Report::Draining { engine } => {
                let was_open = self.any_open();
                if let Some(account) = self.engines.get_mut(engine) {
                    account.draining = true;
                    self.departed.push((account.geometry, self.now));
                }
                if was_open && !self.any_open() {
                    self.charge_all(Cause::NoEngine);
                }
                self.call_back(|model, request| !model.never_fits(request));
            }
            Report::Begun { engine, seq } => {
                if let Some(account) = self.engines.get_mut(engine) {
                    account.begun = account.begun.max(*seq);
                }
            }
            Report::Rejected { key } => self.requests[number(*key)].place = Place::Gone,
            Report::Step(step) => {
                let mut preempted = Vec::new();
                for row in &step.rows {
                    let r = number(row.key);
                    let request = &mut self.requests[r];
                    let Place::Active { .. } = request.place else { continue };
                    request.generated = (request.generated + row.tokens.0).min(request.request.max_new.0);
                    if self.budget.policy == Policy::Fair && row.tokens.0 > 0 {
                        let account = self.served.entry(request.request.tenant.0).or_insert((self.floor, 0));
                        account.0 += i64::from(row.tokens.0);
                    }
                    match row.end {
                        Some(End::Finished) => request.place = Place::Gone,
                        Some(End::Preempted) => preempted.push(r),
                        None => {}
                    }
                }
                let account = self.engines.get_mut(&step.engine).expect("steps come from attached engines");
                account.free = step.free_blocks.0;
                account.last_seq = account.last_seq.max(step.last_seq);
                preempted.sort();
                preempted.into_iter().rev().for_each(|r| self.requeue(r, true));
            }
        }
        self.mark_heads();
    }

    pub fn set_budget(&mut self, budget: Budget) {
        let moved = budget.policy != self.budget.policy;
        if moved {
            self.call_back(|_, _| true);
        }
        self.budget = budget;
        self.call_back(|model, request| !model.never_fits(request));
        if moved {
            self.served.clear();
            (self.floor, self.last_served) = (0, None);
            self.lanes.clear();
            for r in self.pending() {
                self.join(r, false);
            }
            self.charge_all(self.idle());
        }
        self.mark_heads();
    }

    fn idle(&self) -> Cause {
        if self.any_open() { Cause::EngineBusy } else { Cause::NoEngine }
    }

    fn charge_all(&mut self, cause: Cause) {
        for r in self.pending() {
            if !self.aside.contains(&r) {
                self.requests[r].charged = cause;
            }
        }
    }
}
