//! Planning: one round, from the choice of an engine to what is charged to those left behind.

use firstlight_proto::clock::Stamp;

use super::{
    Admission,
    book::{Active, Book, Entry, Place, Slot},
    budget::{Budget, Policy},
    cause::{ByCause, Cause},
    history::Grant,
    kv,
    lanes::{Lane, LaneName},
    policy,
    report::{EngineId, Geometry},
    request::Blocks,
    round::{Admitted, Need, Room, Round},
    waiting::Limits,
};

/// A round being put together.
pub(super) struct Draft {
    pub now: Stamp,
    pub engine: EngineId,
    pub geometry: Geometry,
    pub room: Room,
    pub batch: Vec<Admitted>,
    /// What refused the request whose turn it was.
    pub stopped_by: Option<Cause>,
    /// Requests that were examined and left, with what refused each.
    pub passed: Vec<(Slot, Cause)>,
    seq: u64,
    promised: u64,
    worst: u64,
    latest: Latest,
}

impl Admission {
    pub(super) fn plan_round(&mut self, now: Stamp) -> Option<Round> {
        if !self.engines.any_has_credit() {
            return None;
        }
        self.turn_away_hopeless_heads(now);
        let mut draft = self.draft(now)?;
        policy::fill(self, &mut draft);
        self.judge(&draft);
        self.bound_by = draft.stopped_by;
        if draft.batch.is_empty() {
            return None;
        }
        let Draft { engine, seq, batch, stopped_by: bound_by, promised, worst, .. } = draft;
        let requests = batch.len() as u32;
        let sent =
            self.engines.change(engine, &self.budget, |account| account.send(requests, promised, worst));
        debug_assert!(sent.is_some(), "it was chosen");
        self.drain.count(now, requests.into());
        self.last_admission = now;
        Some(Round { engine, seq, at: now, batch, bound_by, budget_version: self.budget_version })
    }

    /// A round for the engine that is next, if any has credit.
    fn draft(&self, now: Stamp) -> Option<Draft> {
        let next = self.waiting.lanes.next().map(|slot| &self.book.get(slot).request);
        let engine = self.engines.choose(&self.budget, next)?;
        let account = self.engines.get(engine).expect("it was chosen");
        let active_left = self.budget.max_active_requests.saturating_sub(self.active);
        let room = account.room(&self.budget, active_left);
        let places = room.places.min(room.active).min(self.waiting.len() as u32);
        Some(Draft {
            now,
            engine,
            geometry: account.geometry,
            room,
            batch: Vec::with_capacity(places as usize),
            stopped_by: None,
            passed: Vec::new(),
            seq: account.next_seq(),
            promised: 0,
            worst: 0,
            latest: Latest::default(),
        })
    }

    /// See [`need_of`].
    pub(super) fn need(&self, slot: Slot, geometry: &Geometry) -> Need {
        need_of(self.book.get(slot), geometry, &self.budget)
    }

    /// Moves a pending request into the round; the room has been checked.
    pub(super) fn admit(&mut self, draft: &mut Draft, slot: Slot, need: Need) {
        let from = self.waiting.lanes.get(self.book.pending(slot).lane).serial;
        let grant = Grant { engine: draft.engine, tokens: need.tokens, blocks: need.blocks };
        let attempt = self.record(slot, draft.now, Some(grant));
        let (waited, lane) = self.waiting.leave(&mut self.book, slot, draft.now);
        draft.room.take(need);
        let key = self.book.key(slot);
        let entry = self.book.get_mut(slot);
        let worst = kv::worst(&entry.request, &draft.geometry);
        let (arrival, tenant, generated) = (entry.arrival, entry.request.tenant, entry.generated);
        entry.behind = waited.behind;
        entry.place = Place::Active(Active {
            engine: draft.engine,
            seq: draft.seq,
            admitted: draft.now,
            promised: need.blocks,
            worst,
            attempt,
            waited: waited.by_cause,
            withdrawn: false,
        });
        let resumed = entry.preemptions > 0 || generated.0 > 0;
        let book = &mut self.book;
        self.engines.change(draft.engine, &self.budget, |engine| engine.members.push_back(book, slot));
        self.active += 1;
        draft.promised += u64::from(need.blocks.0);
        draft.worst += u64::from(worst.0);
        draft.latest.add(from, arrival);
        draft.batch.push(Admitted { key, waited, generated });
        if self.budget.policy == Policy::Fair {
            // What is computed again after a loss or a preemption is not the tenant's doing.
            self.served.charge(tenant, if resumed { 0 } else { need.tokens.0 });
            self.served.take_turn(tenant);
        }
        if let Some(lane) = lane {
            policy::rank(self, lane);
        }
    }

    /// Charges those left behind.
    fn judge(&mut self, draft: &Draft) {
        let budget = &self.budget;
        let cut = |book: &Book, lane: &Lane, head: Slot| {
            let entry = book.get(head);
            if lane.name != LaneName::Only && draft.latest.elsewhere(lane.serial) > Some(entry.arrival) {
                return Cause::FairShare;
            }
            let need = need_of(entry, &draft.geometry, budget);
            // A head that nothing refuses waits for the one whose turn it was.
            draft.room.refusal(need).or(draft.stopped_by).unwrap_or(Cause::BatchSize)
        };
        let limits = Limits { value: self.limits(&draft.geometry), engine: draft.engine };
        self.waiting.judge(&mut self.book, draft.now, &limits, cut);
        self.waiting.pass_over(&mut self.book, &draft.passed, &limits, draft.now);
    }

    /// Values of the limits in a round for an engine of this geometry.
    fn limits(&self, geometry: &Geometry) -> ByCause<u64> {
        let mut limits = ByCause::filled(0);
        limits[Cause::MaxActive] = self.budget.max_active_requests.into();
        limits[Cause::KvBlocks] = kv::pool(geometry, &self.budget).0.into();
        limits[Cause::TokenBudget] = self.budget.prefill_max_tokens.0.into();
        limits[Cause::BatchSize] = self.budget.prefill_max_batch_size.into();
        limits
    }
}

/// What it takes to admit a request to an engine of this geometry. One that it could not even hold empty
/// needs more blocks than there are.
fn need_of(entry: &Entry, geometry: &Geometry, budget: &Budget) -> Need {
    let need = kv::need(entry, geometry, budget);
    let fits = kv::fits(&entry.request, geometry, budget);
    if fits { need } else { Need { blocks: Blocks(u32::MAX), ..need } }
}

/// The latest arrival of a round with its lane, by serial number, and the latest from any other lane.
#[derive(Default)]
struct Latest {
    first: Option<(u64, u64)>,
    other: Option<u64>,
}

impl Latest {
    fn add(&mut self, lane: u64, arrival: u64) {
        match self.first {
            Some((latest, of)) if arrival > latest => {
                if of != lane {
                    self.other = Some(latest);
                }
                self.first = Some((arrival, lane));
            }
            Some((_, of)) if of != lane => self.other = self.other.max(Some(arrival)),
            Some(_) => {}
            None => self.first = Some((arrival, lane)),
        }
    }

    /// The latest arrival from another lane than that one.
    fn elsewhere(&self, lane: u64) -> Option<u64> {
        match self.first {
            Some((latest, of)) if of != lane => Some(latest),
            _ => self.other,
        }
    }
}
