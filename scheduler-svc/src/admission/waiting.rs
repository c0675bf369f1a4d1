//! Waiting: requests joining and leaving lanes, with the ledger kept as they do. The only place where a
//! request changes the clock it follows.

use firstlight_proto::clock::Stamp;

use super::{
    book::{Book, Pending, Place, Slot},
    cause::{ByCause, Cause},
    history::{Charge, Recent, Whose},
    lanes::{Lane, LaneId, LaneName, Lanes},
    ledger::{Follow, Ledger},
    report::EngineId,
    round::Waited,
};

/// All that are pending.
#[derive(Debug)]
pub(super) struct Waiting {
    pub lanes: Lanes,
    ledger: Ledger,
    /// Requests that have not seen a round with credit since they were queued.
    newcomers: Vec<Slot>,
    /// Requests that follow a standing clock (and some that have left since).
    alone: Vec<Slot>,
    /// Rounds that passed someone over.
    rounds: u32,
    /// What was charged lately.
    pub charges: Recent<Charge>,
    len: usize,
    engine_attached: bool,
}

/// Charges kept for `explain`.
const CHARGES_KEPT: usize = 16_384;

/// What a round was judged by.
pub(super) struct Limits {
    /// Values of the limits; 0 where a cause has none.
    pub value: ByCause<u64>,
    /// The engine it was for.
    pub engine: EngineId,
}

impl Limits {
    fn charge(&self, whose: Whose, cause: Cause, since: Stamp) -> Charge {
        let engine = (cause == Cause::KvBlocks).then_some(self.engine);
        Charge { whose, since, cause: Some(cause), limit: self.value[cause], engine }
    }
}

/// A charge of a cause that has no limit.
fn unlimited(whose: Whose, cause: Option<Cause>, since: Stamp) -> Charge {
    Charge { whose, since, cause, limit: 0, engine: None }
}

/// Which end of its lane a request joins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum At {
    Front,
    Back,
}

impl Waiting {
    pub fn new(now: Stamp, by_deadline: bool) -> Self {
        let mut charges = Recent::new(CHARGES_KEPT);
        charges.push(unlimited(Whose::Newcomers, Some(Cause::NoEngine), now));
        Self {
            lanes: Lanes::new(by_deadline, 0),
            ledger: Ledger::new(now),
            newcomers: Vec::new(),
            alone: Vec::new(),
            rounds: 0,
            charges,
            len: 0,
            engine_attached: false,
        }
    }

    /// Requests pending.
    pub fn len(&self) -> usize {
        self.len
    }

    /// See [`Ledger::blocked_at`].
    pub fn blocked_at(&self, now: Stamp) -> ByCause<u128> {
        self.ledger.blocked_at(now)
    }

    /// Queues a request as a newcomer; `waited` is the time by cause it brings along. Its lane, whose
    /// head is to be marked when all that join at once have joined.
    pub fn join(
        &mut self,
        book: &mut Book,
        slot: Slot,
        name: LaneName,
        at: At,
        waited: &ByCause,
        now: Stamp,
    ) -> LaneId {
        let cause = self.idle_cause();
        let lane = self.lanes.find_or_make(name, cause, now);
        let follow = Follow::Newcomers(self.newcomers.len() as u32);
        self.newcomers.push(slot);
        let shown = self.ledger.shown(follow, &self.lanes.get(lane).clock, now);
        book.get_mut(slot).place = Place::Pending(Pending {
            lane,
            follow,
            base: shown.minus(waited),
            queued: now,
            joined: now,
            headed: None,
            judged: None,
        });
        match at {
            At::Back => self.lanes.push_back(book, lane, slot),
            At::Front => self.lanes.push_front(book, lane, slot),
        }
        self.ledger.blocked().enter(now, cause);
        self.len += 1;
        lane
    }

    /// Puts a request aside, to be charged `no_engine`; `waited` is the time by cause it brings along.
    pub fn set_aside(&mut self, book: &mut Book, slot: Slot, waited: &ByCause, now: Stamp) {
        self.lanes.find_or_make(LaneName::Aside, Cause::NoEngine, now);
        self.join(book, slot, LaneName::Aside, At::Back, waited, now);
        self.newcomers.pop();
        self.follow(book, slot, Follow::Lane, now);
        let pending = book.pending_mut(slot);
        // It is behind no one.
        (pending.headed, pending.judged) = (Some(now), Some(now));
        self.charges.push(unlimited(Whose::Request(book.key(slot)), Some(Cause::NoEngine), now));
    }

    /// A request is no longer aside.
    pub fn end_of_aside(&mut self, book: &Book, slot: Slot, now: Stamp) {
        self.charges.push(unlimited(Whose::Request(book.key(slot)), None, now));
    }

    /// Takes a request out of its lane. Its wait, and its lane if that still holds others (its head may
    /// have changed). The entry's place is the caller's to set.
    pub fn leave(&mut self, book: &mut Book, slot: Slot, now: Stamp) -> (Waited, Option<LaneId>) {
        let waited = self.waited(book, slot, now);
        let (lane, follow) = (book.pending(slot).lane, book.pending(slot).follow);
        let cause = self.ledger.charged(follow, &self.lanes.get(lane).clock);
        self.ledger.blocked().leave(now, cause);
        match follow {
            Follow::Newcomers(index) => self.forget_newcomer(book, index),
            Follow::Lane => self.lanes.get_mut(lane).followers -= 1,
            Follow::Alone { .. } => {}
        }
        self.len -= 1;
        let lane = self.lanes.remove(book, lane, slot).then_some(lane);
        if let Some(lane) = lane {
            self.mark_head(book, lane, now);
        }
        (waited, lane)
    }

    /// How long a pending request has waited, and why.
    pub fn waited(&self, book: &Book, slot: Slot, now: Stamp) -> Waited {
        let entry = book.get(slot);
        let pending = book.pending(slot);
        let shown = self.ledger.shown(pending.follow, &self.lanes.get(pending.lane).clock, now);
        Waited {
            by_cause: shown.minus(&pending.base),
            behind: entry.behind + pending.headed.unwrap_or(now).since(pending.queued),
            engine_lost: entry.engine_lost,
            preempted: entry.preempted,
        }
    }

    /// An engine is attached that takes requests, or none is any more: closes what the last round charged.
    pub fn set_engine_attached(&mut self, book: &mut Book, attached: bool, now: Stamp) {
        if self.engine_attached == attached {
            return;
        }
        self.engine_attached = attached;
        let alone = std::mem::take(&mut self.alone);
        self.rounds = self.rounds.wrapping_add(1);
        self.rejoin_lanes(book, alone, self.rounds, now);
        let cause = self.idle_cause();
        self.ledger.switch_newcomers(now, cause, self.newcomers.len());
        self.charges.push(unlimited(Whose::Newcomers, Some(cause), now));
        for lane in self.lanes.ids().collect::<Vec<_>>() {
            let whose = Whose::Lane(self.lanes.get(lane).serial);
            self.switch(lane, cause, unlimited(whose, Some(cause), now));
        }
    }

    /// A round with credit ended: charges each lane its cut, and lets newcomers follow their lanes.
    /// `limits` are the values of the limits.
    pub fn judge(
        &mut self,
        book: &mut Book,
        now: Stamp,
        limits: &Limits,
        cut: impl Fn(&Book, &Lane, Slot) -> Cause,
    ) {
        for id in self.lanes.ids().collect::<Vec<_>>() {
            let lane = self.lanes.get(id);
            let head = lane.head().expect("lanes that are listed hold a request");
            let cause = cut(book, lane, head);
            let charge = limits.charge(Whose::Lane(lane.serial), cause, now);
            self.switch(id, cause, charge);
        }
        for slot in std::mem::take(&mut self.newcomers) {
            self.follow(book, slot, Follow::Lane, now);
            book.pending_mut(slot).judged = Some(now);
        }
    }

    /// Charges requests that a lookahead examined and passed over singly; all others their lane's cut.
    pub fn pass_over(&mut self, book: &mut Book, passed: &[(Slot, Cause)], limits: &Limits, now: Stamp) {
        let before = std::mem::take(&mut self.alone);
        self.rounds = self.rounds.wrapping_add(1);
        let round = self.rounds;
        for (slot, cause) in passed {
            let pending = book.pending_mut(*slot);
            if self.lanes.get(pending.lane).clock.running() == *cause {
                continue;
            }
            match &mut pending.follow {
                Follow::Alone { cause: same, round: last } if same == cause => *last = round,
                _ => {
                    self.follow(book, *slot, Follow::Alone { cause: *cause, round }, now);
                    self.charges.push(limits.charge(Whose::Request(book.key(*slot)), *cause, now));
                }
            }
            self.alone.push(*slot);
        }
        self.rejoin_lanes(book, before, round, now);
    }

    /// Ends all lanes and queues everyone anew, as newcomers, in lanes named by `name`.
    pub fn rearrange(
        &mut self,
        book: &mut Book,
        by_deadline: bool,
        now: Stamp,
        name: impl Fn(&Book, Slot) -> LaneName,
    ) {
        let lanes = self.lanes.ids().collect::<Vec<_>>();
        let mut all: Vec<Slot> =
            lanes.into_iter().flat_map(|lane| self.lanes.get(lane).iter(book).collect::<Vec<_>>()).collect();
        all.sort_unstable_by_key(|slot| book.get(*slot).arrival);
        let kept: Vec<_> = all
            .iter()
            .map(|slot| {
                let pending = book.pending(*slot);
                (pending.queued, pending.headed, self.waited(book, *slot, now).by_cause)
            })
            .collect();
        for slot in &all {
            self.leave(book, *slot, now);
        }
        self.lanes = Lanes::new(by_deadline, self.lanes.made());
        for (slot, (queued, headed, waited)) in all.into_iter().zip(kept) {
            self.join(book, slot, name(book, slot), At::Back, &waited, now);
            let pending = book.pending_mut(slot);
            (pending.queued, pending.headed) = (queued, headed);
        }
        self.mark_heads(book, now);
    }

    /// See [`mark_head`](Self::mark_head), for every lane.
    pub fn mark_heads(&self, book: &mut Book, now: Stamp) {
        self.lanes.ids().for_each(|lane| self.mark_head(book, lane, now));
    }

    /// What a request is charged before its first round with credit.
    fn idle_cause(&self) -> Cause {
        if self.engine_attached { Cause::EngineBusy } else { Cause::NoEngine }
    }

    /// Lets a lane's clock run on what `charge` says.
    fn switch(&mut self, lane: LaneId, cause: Cause, charge: Charge) {
        let lane = self.lanes.get_mut(lane);
        let from = lane.clock.running();
        let charged = (charge.limit, charge.engine);
        if from != cause || lane.charged != charged {
            self.ledger.blocked().shift(charge.since, from, cause, lane.followers);
            lane.clock.switch(charge.since, cause);
            lane.charged = charged;
            self.charges.push(charge);
        }
    }

    fn follow(&mut self, book: &mut Book, slot: Slot, to: Follow, now: Stamp) {
        let (lane, from) = (book.pending(slot).lane, book.pending(slot).follow);
        if from == to {
            return;
        }
        let lane = self.lanes.get_mut(lane);
        let (was, will) = (self.ledger.charged(from, &lane.clock), self.ledger.charged(to, &lane.clock));
        let change =
            self.ledger.shown(to, &lane.clock, now).minus(&self.ledger.shown(from, &lane.clock, now));
        let pending = book.pending_mut(slot);
        pending.base = pending.base.plus(&change);
        pending.follow = to;
        lane.followers += usize::from(to == Follow::Lane);
        lane.followers -= usize::from(from == Follow::Lane);
        self.ledger.blocked().shift(now, was, will, 1);
    }

    /// Those of `slots` that no round since `round` passed over follow their lanes again.
    fn rejoin_lanes(&mut self, book: &mut Book, slots: Vec<Slot>, round: u32, now: Stamp) {
        for slot in slots {
            let Place::Pending(Pending { follow: Follow::Alone { round: last, .. }, .. }) =
                book.get(slot).place
            else {
                continue;
            };
            if last != round {
                self.follow(book, slot, Follow::Lane, now);
                let whose = Whose::Request(book.key(slot));
                self.charges.push(unlimited(whose, None, now));
            }
        }
    }

    fn forget_newcomer(&mut self, book: &mut Book, index: u32) {
        self.newcomers.swap_remove(index as usize);
        if let Some(moved) = self.newcomers.get(index as usize) {
            book.pending_mut(*moved).follow = Follow::Newcomers(index);
        }
    }

    /// Notes who has come to the head of a lane.
    pub fn mark_head(&self, book: &mut Book, lane: LaneId, now: Stamp) {
        let head = self.lanes.get(lane).head().expect("the lane holds a request");
        book.pending_mut(head).headed.get_or_insert(now);
    }
}
