//! The one task that owns the admission core and every request in flight. Messages come in from clients'
//! streams and engines' links; messages go out to both. Nobody else touches this state, so nothing here locks.
//!
//! - [`client`]: the other side of the messages: handing in a request, and its stream of tokens
//! - [`inflight`]: requests that are pending or active
//! - [`doors`]: requests coming in and being taken back
//! - [`rounds`]: what the core plans, sent to engines
//! - [`reports`]: what engines say, given to the core and to clients
//! - [`seats`]: the sequences of one attachment
//! - [`budgets`], [`budget_wire`]: base budget and lease
//! - [`explain`]: why a recent request waited
//! - [`inspect`]: how it stands, for metrics, the watchdog and `GetModel`
//!
//! Per message: take it in, then let the core plan with the same `now`.

pub mod budget_wire;
pub mod budgets;
pub mod client;
pub mod doors;
pub mod explain;
pub mod inflight;
pub mod inspect;
pub mod reports;
pub mod rounds;
pub mod seats;

use std::{collections::HashMap, pin::pin, sync::Arc, time::Duration};

use firstlight_proto::{
    clock::Stamp,
    inject::{Injections, Segment},
    serve::histogram::OwnedHistogram,
};
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use crate::{
    admission::{Admission, BudgetError, EngineId},
    engines::Event,
    metrics,
    shadow::{Feed, News},
    telemetry::Telemetry,
};

pub use budgets::{Budgets, LeaseError};
pub use client::{Command, Dispatcher, End, Ending, Ticket, Token, Withdrawal};
pub use inspect::Served;

use explain::Recent;
use inflight::InFlight;
use reports::Attached;

/// Messages taken from a channel at once.
const BATCH: usize = 256;

/// The task's state.
pub struct Dispatch {
    core: Admission,
    budgets: Budgets,
    inflight: InFlight,
    recent: Recent,
    engines: HashMap<EngineId, Attached>,
    telemetry: Arc<Telemetry>,
    itl: OwnedHistogram,
    shadow: Option<Feed>,
    served: watch::Sender<Arc<Served>>,
    /// Tokens a client's stream may lag behind.
    stream_buffer: usize,
    commands: mpsc::UnboundedReceiver<Command>,
    events: mpsc::Receiver<Event>,
    handle: Dispatcher,
    /// Injected `queue_wait`: no planning before this.
    hold_until: Option<Stamp>,
    hold: Option<Duration>,
}

/// What the task needs to start.
pub struct Config {
    /// Budget in force when no lease is.
    pub budgets: Budgets,
    /// Name of the model; `None` takes the first engine's word.
    pub model_name: Option<String>,
    /// Tokens a client's stream may lag behind, ≥ 1.
    pub stream_buffer: usize,
    /// Delays to inject (`queue_wait`).
    pub injections: Arc<Injections>,
    /// The shadow to tell what happens.
    pub shadow: Option<Feed>,
}

impl Dispatch {
    /// The task, ready to run, and the way to talk to it. `events` come from the engines' links.
    ///
    /// # Errors
    /// When the budget is out of range.
    pub fn new(
        config: Config,
        telemetry: Arc<Telemetry>,
        events: mpsc::Receiver<Event>,
    ) -> Result<(Self, Dispatcher), BudgetError> {
        let (sender, commands) = mpsc::unbounded_channel();
        let served = Served { name: config.model_name.unwrap_or_default(), ..Served::default() };
        let (served, seen) = watch::channel(Arc::new(served));
        let handle = Dispatcher::new(sender, seen);
        let dispatch = Self {
            core: Admission::new(config.budgets.in_force().clone(), telemetry.clock.now())?,
            budgets: config.budgets,
            inflight: InFlight::default(),
            recent: Recent::default(),
            engines: HashMap::new(),
            telemetry,
            itl: OwnedHistogram::new(&metrics::ITL),
            shadow: config.shadow,
            served,
            stream_buffer: config.stream_buffer,
            commands,
            events,
            handle: handle.clone(),
            hold_until: None,
            hold: config.injections.at(Segment::QueueWait),
        };
        dispatch.tell_budget();
        Ok((dispatch, handle))
    }

    /// Serves until `stop`, then fails what is still in flight.
    pub async fn run(mut self, stop: CancellationToken) {
        let (mut commands, mut events) = (Vec::with_capacity(BATCH), Vec::with_capacity(BATCH));
        loop {
            let wake = self.next_wake();
            let sleep =
                pin!(tokio::time::sleep(wake.map_or(Duration::MAX, |at| self.telemetry.clock.until(at))));
            tokio::select! {
                () = stop.cancelled() => break,
                _ = self.commands.recv_many(&mut commands, BATCH) => {}
                _ = self.events.recv_many(&mut events, BATCH) => {}
                () = sleep, if wake.is_some() => self.on_time(),
            }
            events.drain(..).for_each(|event| self.take_event(event));
            commands.drain(..).for_each(|command| self.take_command(command));
            self.handle.standing.set(self.core.is_full());
        }
        self.fail_all();
    }

    fn take_command(&mut self, command: Command) {
        match command {
            Command::Offer { ask, reply } => self.offer(*ask, reply),
            Command::Withdraw { key, why } => self.take_back(key, why),
            Command::With(inspect) => inspect(self),
        }
    }

    fn take_event(&mut self, event: Event) {
        match event {
            Event::Attached(attached) => self.attach(*attached),
            Event::Said { engine, at, message, clock } => self.said(engine, at, *message, clock),
            Event::Lost { engine, reason } => self.lose(engine, &reason),
        }
    }

    /// When something is due even if no message comes.
    fn next_wake(&self) -> Option<Stamp> {
        let due = [
            self.inflight.next_deadline(),
            self.core.next_expiry(),
            self.budgets.lease_expiry(),
            self.hold_until,
        ];
        due.into_iter().flatten().min()
    }

    fn on_time(&mut self) {
        let now = self.now();
        if self.hold_until.is_some_and(|until| until <= now) {
            self.hold_until = None;
        }
        if self.budgets.expire(now) {
            tracing::info!("budget lease expired: base budget restored");
            self.put_budget_in_force(now);
        }
        self.expire(now);
        self.plan(now);
    }

    /// Tells the shadow, if there is one.
    fn tell_shadow(&self, news: impl FnOnce() -> News) {
        if let Some(shadow) = &self.shadow {
            shadow.tell(news());
        }
    }

    fn now(&self) -> Stamp {
        self.telemetry.clock.now()
    }
}
