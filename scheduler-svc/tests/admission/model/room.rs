//! What is left of each limit, and which engine is next.

use firstlight_proto::clock::Stamp;
use scheduler_svc::admission::{Blocks, Cause, EngineId, Geometry, KvPromise, Policy, RETURN_GRACE, Request};

use super::{Model, ModelEngine, ModelRequest, Place};

/// What is left of each limit.
#[derive(Clone, Copy)]
pub struct Left {
    pub active: u32,
    pub blocks: u32,
    pub tokens: u32,
    pub places: u32,
    first: bool,
}

impl Left {
    pub fn refuses(&self, tokens: u32, blocks: u32) -> Option<Cause> {
        let refusals = [
            (self.active == 0, Cause::MaxActive),
            (blocks > self.blocks, Cause::KvBlocks),
            (tokens > self.tokens && !self.first, Cause::TokenBudget),
            (self.places == 0, Cause::BatchSize),
        ];
        refusals.into_iter().find(|(refuses, _)| *refuses).map(|(_, cause)| cause)
    }

    pub fn take(&mut self, tokens: u32, blocks: u32) {
        self.active -= 1;
        self.blocks -= blocks;
        self.tokens = self.tokens.saturating_sub(tokens);
        self.places -= 1;
        self.first = false;
    }
}

impl Model {
    /// Promised blocks of an engine's active requests, in the worst case.
    pub fn worst(&self, engine: EngineId) -> u64 {
        let blocks = |r: &usize| match self.requests[*r].place {
            Place::Active { engine: e, .. } if e == engine => u64::from(self.worst_of(*r, engine)),
            _ => 0,
        };
        self.active().iter().map(blocks).sum()
    }

    pub(super) fn worst_of(&self, r: usize, engine: EngineId) -> u32 {
        let block = self.engines[&engine].geometry.block_size.0;
        self.requests[r].request.positions().0.div_ceil(block)
    }

    pub(super) fn pool(&self, engine: EngineId) -> u32 {
        let blocks = self.engines[&engine].geometry.kv_blocks.0;
        self.budget.kv_blocks.map_or(blocks, |Blocks(most)| most.min(blocks))
    }

    pub(super) fn could_hold(&self, request: &Request, engine: EngineId) -> bool {
        self.could_be_held(request, &self.engines[&engine].geometry)
    }

    pub(super) fn could_be_held(&self, request: &Request, by: &Geometry) -> bool {
        let positions = request.positions().0;
        let pool = self.budget.kv_blocks.map_or(by.kv_blocks, |most| most.min(by.kv_blocks));
        positions <= by.context.0 && positions.div_ceil(by.block_size.0) <= pool.0
    }

    pub(super) fn never_fits(&self, request: &Request) -> bool {
        let open = |(_, account): &(&EngineId, &ModelEngine)| !account.draining;
        self.any_open() && !self.engines.iter().filter(open).any(|(e, _)| self.could_hold(request, *e))
    }

    /// An engine that could hold it was lost lately.
    pub(super) fn is_awaited(&self, request: &Request) -> bool {
        let lately = |lost: i64| self.now < lost + RETURN_GRACE.as_nanos() as i64;
        self.departed.iter().any(|(kind, lost)| lately(*lost) && self.could_be_held(request, kind))
    }

    pub(super) fn late(&self, request: &Request) -> bool {
        self.budget.policy == Policy::Deadline
            && request.deadline.is_some_and(|deadline| Stamp::from_ns(self.now) > deadline)
    }

    pub(super) fn hopeless(&self, request: &Request) -> bool {
        self.never_fits(request) || self.late(request)
    }

    pub(super) fn need(&self, r: usize, engine: EngineId) -> (u32, u32) {
        let ModelRequest { request, generated, preemptions, .. } = &self.requests[r];
        let tokens = request.prompt.0 + generated;
        if !self.could_hold(request, engine) {
            return (tokens, u32::MAX);
        }
        let positions = match self.budget.kv_promise {
            KvPromise::Reserve => request.positions().0,
            KvPromise::Optimistic => {
                let margin = self.budget.kv_margin.0.max(1) * 2_u32.pow(*preemptions);
                (tokens + margin).min(request.positions().0)
            }
        };
        (tokens, positions.div_ceil(self.engines[&engine].geometry.block_size.0))
    }

    pub(super) fn on(&self, engine: EngineId) -> Vec<usize> {
        let on_it =
            |r: &usize| matches!(self.requests[*r].place, Place::Active { engine: e, .. } if e == engine);
        self.active().into_iter().filter(on_it).collect()
    }

    pub(super) fn blocks_left(&self, engine: EngineId) -> u32 {
        let account = &self.engines[&engine];
        let pool = u64::from(self.pool(engine));
        let left = match self.budget.kv_promise {
            KvPromise::Reserve => pool.saturating_sub(self.worst(engine)),
            KvPromise::Optimistic => {
                let unseen = |r: &usize| match self.requests[*r].place {
                    Place::Active { seq, promised, .. } if seq > account.last_seq => u64::from(promised),
                    _ => 0,
                };
                let in_flight: u64 = self.on(engine).iter().map(unseen).sum();
                let withheld = u64::from(account.geometry.kv_blocks.0) - pool;
                u64::from(account.free).saturating_sub(withheld + in_flight)
            }
        };
        left as u32
    }

    pub(super) fn left(&self, engine: EngineId) -> Left {
        let active = self.budget.max_active_requests.saturating_sub(self.active().len() as u32);
        let sequences = self.engines[&engine].geometry.max_sequences;
        Left {
            active: active.min(sequences.saturating_sub(self.on(engine).len() as u32)),
            blocks: self.blocks_left(engine),
            tokens: self.budget.prefill_max_tokens.0,
            places: self.budget.prefill_max_batch_size,
            first: true,
        }
    }

    pub(super) fn has_credit(&self, engine: EngineId) -> bool {
        let account = &self.engines[&engine];
        let unbegun = (account.begun + 1..account.next_seq).filter(|seq| {
            let of_round =
                |r: &usize| matches!(self.requests[*r].place, Place::Active { seq: s, .. } if s == *seq);
            self.on(engine).iter().any(of_round)
        });
        !account.draining && (unbegun.count() as u32) < self.budget.admit_ahead
    }

    pub(super) fn any_open(&self) -> bool {
        self.engines.values().any(|account| !account.draining)
    }

    pub(super) fn choose(&self) -> Option<EngineId> {
        let next = self.first_lane().map(|lane| self.requests[self.lanes[&lane][0]].request);
        let credited: Vec<EngineId> = self.engines.keys().copied().filter(|e| self.has_credit(*e)).collect();
        let can: Vec<EngineId> =
            credited.iter().copied().filter(|e| next.is_none_or(|next| self.could_hold(&next, *e))).collect();
        let of = if can.is_empty() { credited } else { can };
        of.into_iter().min_by_key(|e| {
            let geometry = &self.engines[e].geometry;
            let full = self.on(*e).len() as u32 >= geometry.max_sequences;
            let room = u64::from(self.blocks_left(*e)) * u64::from(geometry.block_size.0);
            (full, std::cmp::Reverse(room), self.on(*e).len(), *e)
        })
    }
}
