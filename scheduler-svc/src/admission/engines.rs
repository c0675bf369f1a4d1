//! Engines: what each attachment was sent, how much credit and room it has, and which one is next.

use std::collections::{BTreeMap, VecDeque};

use super::{
    book::List,
    budget::{Budget, KvPromise},
    kv,
    report::{EngineId, Geometry},
    request::{Blocks, Request, Tokens},
    round::Room,
};

/// The account of one attachment.
#[derive(Debug)]
pub(super) struct Engine {
    pub geometry: Geometry,
    /// Its active requests, in order of admission.
    pub members: List,
    /// How many they are.
    pub active: u32,
    free: Blocks,
    last_seq: u64,
    next_seq: u64,
    /// Rounds that have not begun, or that `free` does not include yet.
    sent: VecDeque<Sent>,
    /// Blocks that all active requests can come to hold.
    worst: u64,
}

/// A round on its way.
#[derive(Debug)]
struct Sent {
    seq: u64,
    begun: bool,
    /// Its requests that are still active.
    left: u32,
    /// The blocks promised to them.
    promised: u64,
}

impl Engine {
    pub fn new(geometry: Geometry) -> Self {
        Self {
            geometry,
            members: List::EMPTY,
            active: 0,
            free: geometry.free_blocks,
            last_seq: 0,
            next_seq: 1,
            sent: VecDeque::new(),
            worst: 0,
        }
    }

    /// Whether another round may be sent now.
    pub fn has_credit(&self, budget: &Budget) -> bool {
        self.unbegun() < budget.admit_ahead as usize
    }

    /// Rounds sent and not begun.
    pub fn unbegun(&self) -> usize {
        self.sent.iter().filter(|sent| !sent.begun).count()
    }

    /// The number the next round will have.
    pub fn next_seq(&self) -> u64 {
        self.next_seq
    }

    /// Blocks left to promise.
    pub fn blocks_left(&self, budget: &Budget) -> Blocks {
        let pool = kv::pool(&self.geometry, budget);
        let left = match budget.kv_promise {
            KvPromise::Reserve => u64::from(pool.0).saturating_sub(self.worst),
            KvPromise::Optimistic => {
                let withheld = u64::from(self.geometry.kv_blocks.0 - pool.0);
                let in_flight: u64 =
                    self.sent.iter().filter(|s| s.seq > self.last_seq).map(|s| s.promised).sum();
                u64::from(self.free.0).saturating_sub(withheld + in_flight)
            }
        };
        Blocks(left as u32)
    }

    /// The limits of a round for this engine; `active_left` is what `max_active_requests` leaves.
    pub fn room(&self, budget: &Budget, active_left: u32) -> Room {
        Room {
            active: active_left.min(self.geometry.max_sequences.saturating_sub(self.active)),
            blocks: self.blocks_left(budget),
            tokens: budget.prefill_max_tokens,
            places: budget.prefill_max_batch_size,
            empty: true,
        }
    }

    /// The round `next_seq` was sent with `requests`, promised and able to hold so many blocks.
    pub fn send(&mut self, requests: u32, promised: u64, worst: u64) {
        self.sent.push_back(Sent { seq: self.next_seq, begun: false, left: requests, promised });
        self.next_seq += 1;
        self.active += requests;
        self.worst += worst;
    }

    /// Rounds up to `seq` have begun.
    pub fn begin(&mut self, seq: u64) {
        self.sent.iter_mut().filter(|sent| sent.seq <= seq).for_each(|sent| sent.begun = true);
        self.forget_settled();
    }

    /// A request of round `seq` has left. A round that all have left needs not begin.
    pub fn part(&mut self, seq: u64, promised: Blocks, worst: Blocks) {
        self.active -= 1;
        self.worst -= u64::from(worst.0);
        if let Some(sent) = self.sent.iter_mut().find(|sent| sent.seq == seq) {
            sent.left -= 1;
            sent.promised -= u64::from(promised.0);
            sent.begun |= sent.left == 0;
        }
    }

    /// The engine reports its free blocks, all rounds up to `last_seq` included.
    pub fn report(&mut self, free: Blocks, last_seq: u64) {
        self.free = free;
        self.last_seq = self.last_seq.max(last_seq);
        self.forget_settled();
    }

    fn forget_settled(&mut self) {
        while self.sent.front().is_some_and(|s| s.begun && (s.seq <= self.last_seq || s.left == 0)) {
            self.sent.pop_front();
        }
    }
}

/// All attachments.
#[derive(Debug, Default)]
pub(super) struct Engines(BTreeMap<EngineId, Engine>);

impl Engines {
    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn attach(&mut self, id: EngineId, geometry: Geometry) {
        self.0.insert(id, Engine::new(geometry));
    }

    pub fn detach(&mut self, id: EngineId) -> Option<Engine> {
        self.0.remove(&id)
    }

    pub fn get(&self, id: EngineId) -> Option<&Engine> {
        self.0.get(&id)
    }

    pub fn get_mut(&mut self, id: EngineId) -> Option<&mut Engine> {
        self.0.get_mut(&id)
    }

    pub fn iter(&self) -> impl Iterator<Item = (EngineId, &Engine)> {
        self.0.iter().map(|(id, engine)| (*id, engine))
    }

    /// Whether some engine may be sent another round now.
    pub fn any_has_credit(&self, budget: &Budget) -> bool {
        self.0.values().any(|engine| engine.has_credit(budget))
    }

    /// The engine to plan for: of those with credit the one with the most room, if need be among those
    /// that could ever hold `next`. Ties go to the least loaded.
    pub fn choose(&self, budget: &Budget, next: Option<&Request>) -> Option<EngineId> {
        let most_room = |(id, engine): &(EngineId, &Engine)| {
            let blocks = u64::from(engine.blocks_left(budget).0);
            let full = engine.active >= engine.geometry.max_sequences;
            let room = blocks * u64::from(engine.geometry.block_size.0);
            (!full, room, std::cmp::Reverse(engine.active), std::cmp::Reverse(*id))
        };
        let credited = || self.iter().filter(|(_, engine)| engine.has_credit(budget));
        let can_hold = |engine: &Engine| next.is_none_or(|next| kv::fits(next, &engine.geometry, budget));
        credited()
            .filter(|(_, engine)| can_hold(engine))
            .max_by_key(most_room)
            .or_else(|| credited().max_by_key(most_room))
            .map(|(id, _)| id)
    }

    /// Whether some attached engine could hold the request if it were empty; `None` when none is attached.
    pub fn could_hold(&self, request: &Request, budget: &Budget) -> Option<bool> {
        (self.len() > 0).then(|| self.0.values().any(|e| kv::fits(request, &e.geometry, budget)))
    }

    /// The largest request that some attached engine could hold: its positions, and that engine.
    pub fn largest(&self, budget: &Budget) -> Option<(Tokens, &Geometry)> {
        let positions = |geometry: &Geometry| {
            let pool = u64::from(kv::pool(geometry, budget).0) * u64::from(geometry.block_size.0);
            Tokens(u32::try_from(pool).unwrap_or(u32::MAX).min(geometry.context.0))
        };
        self.0.values().map(|e| (positions(&e.geometry), &e.geometry)).max_by_key(|(most, _)| *most)
    }
}
