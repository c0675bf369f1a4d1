//! The admission core: which requests go to which engine, when, and why the others wait.
//!
//! Pure, synchronous and deterministic: time comes in as an argument, and nothing here does I/O, reads a
//! clock or takes a lock. The same code runs in production, in the what-if replay and under property tests.
//! One owner drives it:
//!
//! ```text
//! offer(now, request)    at the door: queued, or refused (never fits, full, deadline)
//! withdraw(now, key)     cancel, deadline, disconnect: leaves at once
//! observe(now, report)   from engines: attached, lost, draining, begun, rejected, step
//! set_budget(now, …)     every limit, at run time
//! plan(now)              after each of these, with the same `now`, until it gives no round
//! turn_away(now)         after plan: what was queued but has become hopeless
//! ```
//!
//! How a request gets in: [`door`] refuses what can never fit and what is too much; [`waiting`] puts it in a lane
//! ([`lanes`]) and the [`ledger`] charges its wait; [`plan`] puts rounds together as the [`policy`] says, within the
//! limits of the [`budget`], the [`engines`]' credit and [`kv`] blocks; [`observe`] keeps the engines' accounts. What
//! fits only engines that are [`departed`] waits [`aside`]. [`watch`] tells the owner how it stands,
//! [`explain`](mod@explain) why a request waited.

mod aside;
mod book;
mod budget;
mod cause;
mod deadlines;
mod departed;
mod door;
mod drain;
mod engines;
mod explain;
mod history;
mod kv;
mod lanes;
mod ledger;
mod observe;
mod plan;
mod policy;
mod report;
mod request;
mod round;
mod waiting;
mod watch;

use firstlight_proto::clock::Stamp;

pub use budget::{Budget, BudgetError, KvPromise, Policy};
pub use cause::{ByCause, Cause};
pub use departed::RETURN_GRACE;
pub use door::{NeverFits, Refused, Remedy};
pub use explain::{Explanation, Holder, LostAttempt, Period, RequestState};
pub use policy::adaptive::ControllerState;
pub use report::{End, EngineId, Forward, Geometry, Loss, Report, Requeued, Row, Step};
pub use request::{Blocks, Class, Key, Request, Tenant, Tokens};
pub use round::{Admitted, Round, Waited};
pub use watch::{Dump, EngineState, Gauges, LaneState, Liveness};

use book::{Book, Entry, Place, Slot};
use departed::Departed;
use drain::Drain;
use engines::Engines;
use history::{Attempt, Recent};
use lanes::{LaneId, LaneName};
use policy::{adaptive::Controller, deadline::PrefillSpeed, fair::Served, pack::Turns};
use waiting::{At, Waiting};

/// The core. Its owner calls [`plan`](Self::plan) after every other call that changes something.
#[derive(Debug)]
pub struct Admission {
    budget: Budget,
    budget_version: u64,
    limits_version: u64,
    book: Book,
    waiting: Waiting,
    engines: Engines,
    departed: Departed,
    /// When the first of those set aside may have to be turned away.
    aside_until: Option<Stamp>,
    active: u32,
    arrivals: u64,
    drain: Drain,
    served: Served,
    speed: PrefillSpeed,
    controller: Controller,
    turns: Turns,
    attempts: Recent<Attempt>,
    turned_away: Vec<TurnedAway>,
    bound_by: Option<Cause>,
    last_admission: Stamp,
}

/// A request is pending.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Queued {
    /// Names it from now on.
    pub key: Key,
    /// Requests pending, itself included.
    pub pending: usize,
}

/// What a withdrawal found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Withdrawn {
    /// It was pending and has left.
    Pending(Waited),
    /// It is active: cancel it at its engine. It counts as active until its row ends.
    Active(EngineId),
    /// It is not here (any more).
    Unknown,
}

/// A request that was queued and has to be refused after all. It has left the core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TurnedAway {
    /// Which.
    pub key: Key,
    /// Why.
    pub why: Refused,
    /// Its wait so far, by cause.
    pub waited: Waited,
}

/// The part of the budget that engines enforce, for `SetLimits`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EngineLimits {
    /// Rows of one decode forward.
    pub max_batch_size: u32,
    /// Prompt tokens of one prefill forward; moved by `adaptive`.
    pub step_prefill_tokens: Tokens,
    /// Decode before prefill within a step.
    pub decode_first: bool,
    /// Grows with every change.
    pub version: u64,
}

impl Admission {
    /// Bytes that one pending or active request occupies.
    pub const BYTES_PER_REQUEST: usize = Book::BYTES_PER_REQUEST;

    /// An empty core without engines.
    pub fn new(budget: Budget, now: Stamp) -> Result<Self, BudgetError> {
        budget.validate()?;
        Ok(Self {
            waiting: Waiting::new(now, budget.policy == Policy::Deadline),
            controller: Controller::new(budget.step_prefill_tokens),
            budget,
            budget_version: 1,
            limits_version: 1,
            book: Book::new(),
            engines: Engines::default(),
            departed: Departed::default(),
            aside_until: None,
            active: 0,
            arrivals: 0,
            drain: Drain::new(now),
            served: Served::default(),
            speed: PrefillSpeed::default(),
            turns: Turns::default(),
            attempts: Recent::new(explain::ATTEMPTS_KEPT),
            turned_away: Vec::new(),
            bound_by: None,
            last_admission: now,
        })
    }

    /// Whether as many requests wait as may.
    pub fn is_full(&self) -> bool {
        self.waiting.len() >= self.budget.max_pending as usize
    }

    /// Lets another request wait, or gives the one refused its place in the drain; asked once per request, before it
    /// costs anything, such as tokenizing it.
    pub fn check_room(&mut self, now: Stamp) -> Result<(), Refused> {
        if !self.is_full() {
            return Ok(());
        }
        let (pending, max_pending) = (self.waiting.len(), self.budget.max_pending);
        Err(Refused::Full { pending, max_pending, retry_after: self.drain.retry_after(now) })
    }

    /// Queues a request; `now` is its stamp 3.
    pub fn offer(&mut self, now: Stamp, request: Request) -> Result<Queued, Refused> {
        self.check_room(now)?;
        match self.hopeless(&request, request.prompt, now) {
            Some(Refused::NeverFits(_)) if self.may_fit(&request, now) => {}
            Some(why) => return Err(why),
            None => {}
        }
        self.arrivals += 1;
        let slot = self.book.open(request, self.arrivals, now);
        let lane = self.enqueue(now, slot, At::Back, &ByCause::default());
        self.waiting.mark_head(&mut self.book, lane, now);
        Ok(Queued { key: self.book.key(slot), pending: self.waiting.len() })
    }

    /// Takes a request back, wherever it is.
    pub fn withdraw(&mut self, now: Stamp, key: Key) -> Withdrawn {
        let Some(slot) = self.book.find(key) else { return Withdrawn::Unknown };
        match &mut self.book.get_mut(slot).place {
            Place::Active(active) => {
                active.withdrawn = true;
                Withdrawn::Active(active.engine)
            }
            Place::Pending(_) => Withdrawn::Pending(self.remove(now, slot)),
            Place::Free => Withdrawn::Unknown,
        }
    }

    /// The next round, if an engine has credit and a request fits. Call it until it gives none.
    pub fn plan(&mut self, now: Stamp) -> Option<Round> {
        self.plan_round(now)
    }

    /// Requests that were queued and cannot be served: policy `deadline` found that they cannot make it, or
    /// no engine could ever hold them, or those that could are gone. Call after planning, and at [`next_expiry`](Self::next_expiry).
    pub fn turn_away(&mut self, now: Stamp) -> Vec<TurnedAway> {
        if self.budget.policy == Policy::Deadline {
            self.turn_away_hopeless_heads(now);
        }
        self.stop_waiting_aside(now);
        std::mem::take(&mut self.turned_away)
    }

    /// When someone becomes hopeless if nothing happens before: set aside, or at the head (policy `deadline`).
    pub fn next_expiry(&self) -> Option<Stamp> {
        [self.aside_until, self.head_expiry()].into_iter().flatten().min()
    }

    fn head_expiry(&self) -> Option<Stamp> {
        if self.budget.policy != Policy::Deadline {
            return None;
        }
        let entry = self.book.get(self.waiting.lanes.next()?);
        let prefill = self.speed.estimate(entry.request.prompt + entry.generated);
        Some(entry.request.deadline? - prefill + std::time::Duration::from_nanos(1))
    }

    /// Takes in what an engine reports. The requests it sent back to the queue, in order.
    pub fn observe(&mut self, now: Stamp, report: Report) -> Vec<Requeued> {
        self.take_report(now, report)
    }

    /// Puts another budget in force, all or nothing; its version.
    pub fn set_budget(&mut self, now: Stamp, budget: Budget) -> Result<u64, BudgetError> {
        budget.validate()?;
        if budget.policy != self.budget.policy {
            self.call_back(now, |_, _| true);
        }
        let old = std::mem::replace(&mut self.budget, budget);
        let budget = &self.budget;
        self.engines.rank_all(budget);
        if old.policy != budget.policy {
            self.served = Served::default();
            let name = |book: &Book, slot| policy::lane_name(budget.policy, &book.get(slot).request);
            self.waiting.rearrange(&mut self.book, budget.policy == Policy::Deadline, now, name);
            for lane in self.waiting.lanes.ids() {
                if let LaneName::Tenant(tenant) = self.waiting.lanes.get(lane).name {
                    self.served.lift(tenant, None);
                }
            }
        }
        if old.policy != budget.policy || old.step_prefill_tokens != budget.step_prefill_tokens {
            self.controller.restart(budget.step_prefill_tokens);
        }
        for lane in self.waiting.lanes.ids().collect::<Vec<_>>() {
            policy::rank(self, lane);
        }
        self.call_back(now, Self::fits_an_engine);
        // The blocks that a budget allows decide who is worth waiting for.
        self.aside_until = self.aside_until.map(|_| now);
        self.budget_version += 1;
        self.limits_version += 1;
        Ok(self.budget_version)
    }

    /// The budget in force and its version.
    pub fn budget(&self) -> (&Budget, u64) {
        (&self.budget, self.budget_version)
    }

    /// What engines have to be told; send it when its version changes.
    pub fn engine_limits(&self) -> EngineLimits {
        let step_prefill_tokens = match self.budget.policy {
            Policy::Adaptive => self.controller.state().step_prefill_tokens,
            _ => self.budget.step_prefill_tokens,
        };
        EngineLimits {
            max_batch_size: self.budget.max_batch_size,
            step_prefill_tokens,
            decode_first: self.budget.decode_first,
            version: self.limits_version,
        }
    }

    /// How long a pending request has waited by now, and why; `None` when it is not pending.
    pub fn waited(&self, now: Stamp, key: Key) -> Option<Waited> {
        let slot = self.book.find(key)?;
        matches!(self.book.get(slot).place, Place::Pending(_))
            .then(|| self.waiting.waited(&self.book, slot, now))
    }

    /// Puts an entry in the lane its policy says, whose head is still to be marked.
    fn enqueue(&mut self, now: Stamp, slot: Slot, at: At, brought: &ByCause) -> LaneId {
        let request = &self.book.get(slot).request;
        let name = policy::lane_name(self.budget.policy, request);
        if let LaneName::Tenant(tenant) = name
            && self.waiting.lanes.find(name).is_none()
        {
            self.served.lift(tenant, self.waiting.lanes.lowest_rank());
        }
        let lane = self.waiting.join(&mut self.book, slot, name, at, brought, now);
        policy::rank(self, lane);
        lane
    }

    /// Takes a pending request out for good.
    fn remove(&mut self, now: Stamp, slot: Slot) -> Waited {
        self.record(slot, now, None);
        let (waited, lane) = self.waiting.leave(&mut self.book, slot, now);
        self.book.close(slot);
        self.drain.count(now, 1);
        if let Some(lane) = lane {
            policy::rank(self, lane);
        }
        waited
    }

    /// Why a request with so many tokens to prefill can not be served, now or ever.
    fn hopeless(&self, request: &Request, to_prefill: Tokens, now: Stamp) -> Option<Refused> {
        if let Some(never) = door::never_fits(request, &self.engines, &self.budget) {
            return Some(never.into());
        }
        let deadline = self.budget.policy == Policy::Deadline;
        let short_by = deadline.then(|| policy::deadline::short_by(request, to_prefill, &self.speed, now))?;
        short_by.map(|short_by| Refused::Deadline { short_by })
    }

    /// Whether some engine could hold the request if it were empty, or none is attached.
    fn fits_an_engine(&self, request: &Request) -> bool {
        self.engines.could_hold(request, &self.budget) != Some(false)
    }

    /// Whether an engine that could hold the request may come back.
    fn may_fit(&self, request: &Request, now: Stamp) -> bool {
        self.departed.awaited_until(request, &self.budget).is_some_and(|until| now < until)
    }

    fn turn_away_hopeless_heads(&mut self, now: Stamp) {
        while self.waiting.lanes.next().is_some_and(|head| self.clear_away_if_hopeless(head, now)) {}
    }

    /// Takes a pending request off its lane if it cannot be served as things are: out of the core, or aside when an
    /// engine that could hold it may come back. Whether it has.
    fn clear_away_if_hopeless(&mut self, slot: Slot, now: Stamp) -> bool {
        let Entry { request, generated, .. } = self.book.get(slot);
        let Some(why) = self.hopeless(request, request.prompt + *generated, now) else { return false };
        let awaited = self.departed.awaited_until(request, &self.budget);
        match (why, awaited) {
            (Refused::NeverFits(_), Some(until)) if now < until => self.set_aside(slot, until, now),
            (Refused::NeverFits(_), Some(_)) => self.turn_away_for(slot, Refused::EnginesGone, now),
            _ => self.turn_away_for(slot, why, now),
        }
        true
    }

    fn turn_away_for(&mut self, slot: Slot, why: Refused, now: Stamp) {
        let key = self.book.key(slot);
        let waited = self.remove(now, slot);
        self.turned_away.push(TurnedAway { key, why, waited });
    }
}
