//! How the core stands: gauges for metrics, and the facts a liveness watchdog judges by.

use firstlight_proto::clock::Stamp;

use super::{
    Admission,
    budget::Budget,
    cause::{ByCause, Cause},
    lanes::{LaneId, LaneName},
    policy::adaptive::ControllerState,
    report::EngineId,
    request::{Blocks, Key, Request},
    round::Waited,
};

/// Numbers for metrics.
#[derive(Clone, Debug, PartialEq)]
pub struct Gauges {
    /// Requests pending.
    pub pending: usize,
    /// Requests admitted and not finished.
    pub active: u32,
    /// Time blocked by cause over all requests, pending ones included, ns. Advances while they wait.
    pub blocked: ByCause<u128>,
    /// Requests that left the queue per second, over the last seconds.
    pub drain_per_s: f64,
    /// The limit that stopped the last round with credit.
    pub bound_by: Option<Cause>,
    /// State of the `adaptive` controller.
    pub controller: ControllerState,
    /// Each attached engine.
    pub engines: Vec<EngineState>,
}

/// One attached engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EngineState {
    /// Which.
    pub engine: EngineId,
    /// Its active requests.
    pub active: u32,
    /// Rounds sent and not begun.
    pub unbegun: usize,
    /// Blocks left to promise.
    pub blocks_left: Blocks,
}

/// The core's state, for the log line of a stall.
#[derive(Clone, Debug, PartialEq)]
pub struct Dump {
    /// The budget in force.
    pub budget: Budget,
    /// What stands between the next request and its admission.
    pub liveness: Liveness,
    /// Numbers of the core and of each engine.
    pub gauges: Gauges,
    /// The lanes that are next to be served, in that order, at most [`Dump::LANES`]; then the requests set aside.
    pub lanes: Vec<LaneState>,
}

impl Dump {
    /// Lanes described: one tenant each must not make a log line of megabytes.
    pub const LANES: usize = 16;
}

/// One lane that holds a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaneState {
    /// Requests in it.
    pub pending: usize,
    /// Its cut: the limit that refused its first untaken request in the last round with credit.
    pub cut: Cause,
    /// The request at its head.
    pub head: Key,
    /// What the head asks for.
    pub request: Request,
    /// How long the head has waited, and why.
    pub waited: Waited,
}

/// What the watchdog judges by. When all four hold and no admission follows, admission is stuck; overload
/// alone never makes them hold, since planning admits whoever fits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Liveness {
    /// A request is pending.
    pub waiting: bool,
    /// An engine is attached that takes requests.
    pub engine_attached: bool,
    /// An engine has credit.
    pub credit: bool,
    /// The request whose turn it is fits that engine within the budget.
    pub budget_free: bool,
    /// The last admission, or when the core was made.
    pub last_admission: Stamp,
}

impl Liveness {
    /// Whether nothing keeps the next request from being admitted.
    pub fn should_admit(&self) -> bool {
        self.waiting && self.engine_attached && self.credit && self.budget_free
    }
}

impl Admission {
    /// Numbers for metrics. O(engines).
    pub fn gauges(&self, now: Stamp) -> Gauges {
        let engine = |(id, account): (EngineId, &super::engines::Engine)| EngineState {
            engine: id,
            active: account.active,
            unbegun: account.unbegun(),
            blocks_left: account.blocks_left(&self.budget),
        };
        Gauges {
            pending: self.waiting.len(),
            active: self.active,
            blocked: self.waiting.blocked_at(now),
            drain_per_s: self.drain.rate(now),
            bound_by: self.bound_by,
            controller: self.controller.state(),
            engines: self.engines.iter().map(engine).collect(),
        }
    }

    /// Engines attached that take requests.
    pub fn open_engines(&self) -> usize {
        self.engines.open().count()
    }

    /// The facts the watchdog judges by.
    pub fn liveness(&self) -> Liveness {
        let head = self.waiting.lanes.next();
        let next = head.map(|slot| &self.book.get(slot).request);
        let engine = self.engines.choose(&self.budget, next).and_then(|id| self.engines.get(id));
        let active_left = self.budget.max_active_requests.saturating_sub(self.active);
        let fits = head.zip(engine).is_some_and(|(head, engine)| {
            let need = self.need(head, &engine.geometry);
            engine.room(&self.budget, active_left).refusal(need).is_none()
        });
        Liveness {
            waiting: head.is_some(),
            engine_attached: self.engines.any_open(),
            credit: engine.is_some(),
            budget_free: fits,
            last_admission: self.last_admission,
        }
    }

    /// The core's state, lane by lane. O(engines + [`Dump::LANES`]).
    pub fn dump(&self, now: Stamp) -> Dump {
        let lane = |id: LaneId| {
            let lane = self.waiting.lanes.get(id);
            let head = lane.head()?;
            Some(LaneState {
                pending: lane.len(),
                cut: lane.clock.running(),
                head: self.book.key(head),
                request: self.book.get(head).request,
                waited: self.waiting.waited(&self.book, head, now),
            })
        };
        let lanes = &self.waiting.lanes;
        let ids = lanes.ids().take(Dump::LANES).chain(lanes.find(LaneName::Aside));
        Dump {
            budget: self.budget.clone(),
            liveness: self.liveness(),
            gauges: self.gauges(now),
            lanes: ids.filter_map(lane).collect(),
        }
    }
}
