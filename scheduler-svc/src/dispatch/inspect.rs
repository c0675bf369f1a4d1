//! How it stands: for metrics, the watchdog, operators and `GetModel`.

use std::{sync::Arc, time::Duration};

use firstlight_proto::{error::Failure, serve::metrics::seconds_counter, v1};

use super::{Dispatch, LeaseError};
use crate::{
    admission::{Dump, Liveness},
    metrics::{self, EngineGauges},
};

/// The model that is served, as the attached engines tell.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Served {
    /// Name accepted in requests; empty while neither a flag nor an engine told it.
    pub name: String,
    /// Most positions of a sequence on any engine; 0 while none is attached.
    pub context_length: u32,
    /// Token ids are below this; 0 while no engine is attached.
    pub vocab_size: u32,
    /// End-of-sequence tokens.
    pub eos_ids: Vec<u32>,
    /// Engines attached that take requests.
    pub engines: usize,
}

impl Dispatch {
    /// Brings all gauges up to date; the page's lines for what the recorder does not hold.
    pub fn scrape(&mut self) -> String {
        let gauges = self.core.gauges(self.now());
        let engines: Vec<_> = self
            .engines
            .iter()
            .map(|(id, attached)| {
                let state = gauges.engines.iter().find(|e| e.engine == *id);
                EngineGauges {
                    name: &attached.name,
                    kv_blocks: attached.hello.kv_blocks,
                    kv_blocks_free: attached.free_blocks,
                    kv_blocks_left: state.map_or(0, |s| s.blocks_left.0),
                    active: state.map_or(0, |s| s.active),
                    clock: *attached.clock.borrow(),
                }
            })
            .collect();
        metrics::set_gauges(&gauges, &engines);
        self.tell_budget();
        let blocked = gauges
            .blocked
            .iter()
            .map(|(cause, ns)| (cause.label(), Duration::from_nanos(u64::try_from(ns).unwrap_or(u64::MAX))));
        seconds_counter(&metrics::BLOCKED, blocked) + &self.itl.page() + &metrics::engine_gauges(&engines)
    }

    /// What the watchdog judges by.
    pub fn liveness(&mut self) -> Liveness {
        self.core.liveness()
    }

    /// The core's state, for the watchdog's log line.
    pub fn dump(&mut self) -> Dump {
        let now = self.now();
        self.core.dump(now)
    }

    /// Requests that someone waits for.
    pub fn in_flight(&mut self) -> usize {
        self.inflight.keys().len()
    }

    /// Engines attached now.
    pub fn engine_infos(&mut self) -> Vec<v1::EngineInfo> {
        let info = |attached: &super::Attached| v1::EngineInfo {
            name: attached.name.to_string(),
            address: attached.address.to_string(),
            backend: attached.hello.backend.clone(),
            dtype: attached.hello.dtype.clone(),
            threads: attached.hello.threads,
            block_size: attached.hello.block_size,
            kv_blocks: attached.hello.kv_blocks,
            clock: attached
                .clock
                .borrow()
                .map(|clock| clock.to_wire(&attached.name, attached.hello.domain.clone())),
            version: attached.hello.version.clone(),
            max_sequences: attached.hello.max_sequences,
            context_length: attached.hello.context_length,
            mixed: attached.hello.mixed,
        };
        let mut infos: Vec<_> = self.engines.values().map(info).collect();
        infos.sort_by(|a, b| a.name.cmp(&b.name));
        infos
    }

    /// The budget in force, the base and the lease.
    pub fn budget_state(&mut self) -> v1::BudgetState {
        self.budgets.state(self.core.budget().1, self.now())
    }

    /// Changes the base budget.
    ///
    /// # Errors
    /// Names the field that is out of range, or that an attached engine cannot follow.
    pub fn set_budget(&mut self, change: &v1::Budget) -> Result<v1::BudgetState, Failure> {
        self.check_with_engines(change)?;
        self.budgets.set(change)?;
        Ok(self.budget_changed())
    }

    /// Gives or renews a lease.
    ///
    /// # Errors
    /// When it cannot be given.
    pub fn lease_budget(
        &mut self,
        request: v1::LeaseBudgetRequest,
    ) -> Result<v1::LeaseBudgetResponse, LeaseError> {
        if let Some(change) = &request.change {
            self.check_with_engines(change)?;
        }
        let holder = request.holder.clone();
        let lease_id = self.budgets.lease(request, self.now())?;
        tracing::info!(%lease_id, %holder, "budget leased");
        Ok(v1::LeaseBudgetResponse { lease_id, state: Some(self.budget_changed()) })
    }

    /// Ends a lease.
    ///
    /// # Errors
    /// When it is not in force.
    pub fn release_budget(&mut self, lease_id: &str) -> Result<v1::BudgetState, LeaseError> {
        self.budgets.release(lease_id)?;
        tracing::info!(%lease_id, "budget lease released");
        Ok(self.budget_changed())
    }

    /// Refuses what an attached engine cannot follow. One that attaches later is spared it
    /// ([`tell_limits`](super::Attached::tell_limits)).
    fn check_with_engines(&self, change: &v1::Budget) -> Result<(), Failure> {
        let mixed = self.engines.values().find(|attached| attached.hello.mixed);
        let Some(engine) = mixed.filter(|_| change.decode_first == Some(true)) else { return Ok(()) };
        let reason = format!(
            "engine {} mixes prompt and decode rows in one forward, so neither comes first; \
             start it without --mixed",
            engine.name
        );
        Err(Failure::Invalid { field: "decode_first", reason })
    }

    fn budget_changed(&mut self) -> v1::BudgetState {
        let now = self.now();
        self.put_budget_in_force(now);
        self.plan(now);
        self.budget_state()
    }

    /// Gives the core the budget that is to be in force, if it is another.
    pub(super) fn put_budget_in_force(&mut self, now: firstlight_proto::clock::Stamp) {
        if self.core.budget().0 == self.budgets.in_force() {
            return;
        }
        if let Err(error) = self.core.set_budget(now, self.budgets.in_force().clone()) {
            // Budgets are checked where they are made.
            tracing::error!(%error, "budget refused by the core");
        }
        self.tell_budget();
    }

    pub(super) fn tell_budget(&self) {
        let (budget, version) = self.core.budget();
        let step_prefill_tokens = self.core.engine_limits().step_prefill_tokens.0;
        metrics::set_budget(budget, version, self.budgets.is_leased(), step_prefill_tokens);
    }

    pub(super) fn publish_served(&self) {
        let hellos = || self.engines.values().map(|attached| &attached.hello);
        self.served.send_modify(|served| {
            let mut next = Served::clone(served);
            next.engines = self.core.open_engines();
            if let Some(hello) = hellos().max_by_key(|hello| hello.context_length) {
                next.context_length = hello.context_length;
                next.vocab_size = hellos().map(|h| h.vocab_size).min().unwrap_or(0);
                next.eos_ids.clone_from(&hello.eos_ids);
                if next.name.is_empty() {
                    next.name.clone_from(&hello.model);
                }
            }
            *served = Arc::new(next);
        });
    }
}
