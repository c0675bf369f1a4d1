//! Engines: what each attachment was sent, how much credit and room it has, and which one is next.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet, VecDeque},
};

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
    /// It takes no more rounds; what it has goes on.
    draining: bool,
    /// Its place among those with credit; `None` without.
    rank: Option<Rank>,
}

/// The order in which engines with credit are sent rounds, the last one first: not full, most room in tokens,
/// fewest active, and of equals the one attached first.
type Rank = (bool, u64, Reverse<u32>, Reverse<EngineId>);

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
            draining: false,
            rank: None,
        }
    }

    /// Whether another round may be sent now.
    fn has_credit(&self, budget: &Budget) -> bool {
        !self.draining && self.unbegun() < budget.admit_ahead as usize
    }

    /// No more rounds from now on.
    pub fn drain(&mut self) {
        self.draining = true;
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

    fn rank(&self, id: EngineId, budget: &Budget) -> Option<Rank> {
        self.has_credit(budget).then(|| {
            let room = u64::from(self.blocks_left(budget).0) * u64::from(self.geometry.block_size.0);
            let full = self.active >= self.geometry.max_sequences;
            (!full, room, Reverse(self.active), Reverse(id))
        })
    }

    fn forget_settled(&mut self) {
        while self.sent.front().is_some_and(|s| s.begun && (s.seq <= self.last_seq || s.left == 0)) {
            self.sent.pop_front();
        }
    }
}

/// All attachments, and those with credit in the order they are to be used: a round costs the same with one engine
/// and with a thousand.
#[derive(Debug, Default)]
pub(super) struct Engines {
    accounts: BTreeMap<EngineId, Engine>,
    ready: BTreeSet<Rank>,
}

impl Engines {
    /// Whether an engine is attached that takes requests.
    pub fn any_open(&self) -> bool {
        self.open().next().is_some()
    }

    /// Attached engines that do not drain.
    pub fn open(&self) -> impl Iterator<Item = &Engine> {
        self.accounts.values().filter(|engine| !engine.draining)
    }

    pub fn attach(&mut self, id: EngineId, geometry: Geometry, budget: &Budget) {
        self.detach(id);
        self.accounts.insert(id, Engine::new(geometry));
        self.change(id, budget, |_| ());
    }

    pub fn detach(&mut self, id: EngineId) -> Option<Engine> {
        let engine = self.accounts.remove(&id)?;
        if let Some(rank) = &engine.rank {
            self.ready.remove(rank);
        }
        Some(engine)
    }

    pub fn get(&self, id: EngineId) -> Option<&Engine> {
        self.accounts.get(&id)
    }

    /// Changes the account of an engine; `None` when it is not attached.
    pub fn change<T>(
        &mut self,
        id: EngineId,
        budget: &Budget,
        change: impl FnOnce(&mut Engine) -> T,
    ) -> Option<T> {
        let engine = self.accounts.get_mut(&id)?;
        let changed = change(engine);
        let rank = engine.rank(id, budget);
        if engine.rank != rank {
            if let Some(old) = std::mem::replace(&mut engine.rank, rank) {
                self.ready.remove(&old);
            }
            self.ready.extend(rank);
        }
        Some(changed)
    }

    /// Another budget is in force: credit and room are judged anew.
    pub fn rank_all(&mut self, budget: &Budget) {
        for id in self.accounts.keys().copied().collect::<Vec<_>>() {
            self.change(id, budget, |_| ());
        }
    }

    pub fn iter(&self) -> impl Iterator<Item = (EngineId, &Engine)> {
        self.accounts.iter().map(|(id, engine)| (*id, engine))
    }

    /// Whether some engine may be sent another round now.
    pub fn any_has_credit(&self) -> bool {
        !self.ready.is_empty()
    }

    /// The engine to plan for: of those with credit the one with the most room, if need be among those
    /// that could ever hold `next`. Ties go to the least loaded.
    pub fn choose(&self, budget: &Budget, next: Option<&Request>) -> Option<EngineId> {
        let credited = || self.ready.iter().rev().map(|(.., Reverse(id))| *id);
        let can_hold =
            |id: &EngineId| next.is_none_or(|next| kv::fits(next, &self.accounts[id].geometry, budget));
        credited().find(can_hold).or_else(|| credited().next())
    }

    /// Whether some engine that takes requests could hold this one if it were empty; `None` when there is none.
    pub fn could_hold(&self, request: &Request, budget: &Budget) -> Option<bool> {
        self.any_open().then(|| self.open().any(|e| kv::fits(request, &e.geometry, budget)))
    }

    /// The largest request that some engine that takes requests could hold: its positions, and that engine.
    pub fn largest(&self, budget: &Budget) -> Option<(Tokens, &Geometry)> {
        let positions = |geometry: &Geometry| {
            let pool = u64::from(kv::pool(geometry, budget).0) * u64::from(geometry.block_size.0);
            Tokens(u32::try_from(pool).unwrap_or(u32::MAX).min(geometry.context.0))
        };
        self.open().map(|e| (positions(&e.geometry), &e.geometry)).max_by_key(|(most, _)| *most)
    }
}
