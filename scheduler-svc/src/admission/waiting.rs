//! Waiting: requests joining and leaving lanes, with the ledger kept as they do. The only place where a
//! request changes the clock it follows.

use firstlight_proto::clock::Stamp;

use super::{
    book::{Book, Pending, Place, Slot},
    cause::{ByCause, Cause},
    lanes::{LaneId, LaneName, Lanes},
    ledger::{Follow, Ledger},
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
    len: usize,
    engine_attached: bool,
}

/// Which end of its lane a request joins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum At {
    Front,
    Back,
}

impl Waiting {
    pub fn new(now: Stamp, by_deadline: bool) -> Self {
        Self {
            lanes: Lanes::new(by_deadline),
            ledger: Ledger::new(now),
            newcomers: Vec::new(),
            alone: Vec::new(),
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
    /// head may have changed.
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
        book.get_mut(slot).place =
            Place::Pending(Pending { lane, follow, base: shown.minus(waited), queued: now, headed: None });
        match at {
            At::Back => self.lanes.push_back(book, lane, slot),
            At::Front => self.lanes.push_front(book, lane, slot),
        }
        self.ledger.blocked().enter(now, cause);
        self.len += 1;
        self.mark_head(book, lane, now);
        lane
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
            Follow::Alone(_) => {}
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

    /// An engine is attached, or none is any more: closes what the last round charged.
    pub fn set_engine_attached(&mut self, book: &mut Book, attached: bool, now: Stamp) {
        if self.engine_attached == attached {
            return;
        }
        self.engine_attached = attached;
        self.rejoin_lanes(book, now);
        let cause = self.idle_cause();
        self.ledger.switch_newcomers(now, cause, self.newcomers.len());
        for lane in self.lanes.ids().collect::<Vec<_>>() {
            self.switch(lane, cause, now);
        }
    }

    /// A round with credit ended: charges each lane its cut, and lets newcomers follow their lanes.
    pub fn judge(&mut self, book: &mut Book, now: Stamp, cut: impl Fn(&Book, LaneId, Slot) -> Cause) {
        for lane in self.lanes.ids().collect::<Vec<_>>() {
            let head = self.lanes.get(lane).head().expect("lanes that are listed hold a request");
            self.switch(lane, cut(book, lane, head), now);
        }
        for slot in std::mem::take(&mut self.newcomers) {
            self.follow(book, slot, Follow::Lane, now);
        }
    }

    /// Charges requests that a lookahead examined and passed over singly; all others their lane's cut.
    pub fn pass_over(&mut self, book: &mut Book, passed: &[(Slot, Cause)], now: Stamp) {
        let before = std::mem::take(&mut self.alone);
        for (slot, cause) in passed {
            if self.lanes.get(book.pending(*slot).lane).clock.running() == *cause {
                continue;
            }
            self.follow(book, *slot, Follow::Alone(*cause), now);
            self.alone.push(*slot);
        }
        let passed: std::collections::BTreeSet<_> = self.alone.iter().copied().collect();
        self.rejoin_lane(book, before.into_iter().filter(|slot| !passed.contains(slot)), now);
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
        let mut behind = Vec::with_capacity(all.len());
        for slot in &all {
            let (queued, headed) = (book.pending(*slot).queued, book.pending(*slot).headed);
            let (waited, _) = self.leave(book, *slot, now);
            behind.push((waited.by_cause, queued, headed));
        }
        self.lanes = Lanes::new(by_deadline);
        for (slot, (waited, queued, headed)) in all.into_iter().zip(behind) {
            self.join(book, slot, name(book, slot), At::Back, &waited, now);
            let pending = book.pending_mut(slot);
            pending.queued = queued;
            pending.headed = headed.or(pending.headed);
        }
    }

    /// What a request is charged before its first round with credit.
    fn idle_cause(&self) -> Cause {
        if self.engine_attached { Cause::EngineBusy } else { Cause::NoEngine }
    }

    fn switch(&mut self, lane: LaneId, cause: Cause, now: Stamp) {
        let lane = self.lanes.get_mut(lane);
        let from = lane.clock.running();
        if from != cause {
            self.ledger.blocked().shift(now, from, cause, lane.followers);
            lane.clock.switch(now, cause);
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

    fn rejoin_lanes(&mut self, book: &mut Book, now: Stamp) {
        let alone = std::mem::take(&mut self.alone);
        self.rejoin_lane(book, alone.into_iter(), now);
    }

    fn rejoin_lane(&mut self, book: &mut Book, slots: impl Iterator<Item = Slot>, now: Stamp) {
        for slot in slots {
            let still_alone =
                matches!(&book.get(slot).place, Place::Pending(Pending { follow: Follow::Alone(_), .. }));
            if still_alone {
                self.follow(book, slot, Follow::Lane, now);
            }
        }
    }

    fn forget_newcomer(&mut self, book: &mut Book, index: u32) {
        self.newcomers.swap_remove(index as usize);
        if let Some(moved) = self.newcomers.get(index as usize) {
            book.pending_mut(*moved).follow = Follow::Newcomers(index);
        }
    }

    fn mark_head(&self, book: &mut Book, lane: LaneId, now: Stamp) {
        let head = self.lanes.get(lane).head().expect("the lane holds a request");
        book.pending_mut(head).headed.get_or_insert(now);
    }
}
