//! Lanes: the queues requests wait in. `fifo`, `pack`, `deadline` and `adaptive` have one, `priority` one
//! for each class, `fair` one for each tenant. The lane of the lowest rank is next to be served.

use std::collections::{BTreeMap, BTreeSet};

use firstlight_proto::clock::Stamp;

use super::{
    book::{Book, List, Slot},
    cause::Cause,
    deadlines::ByDeadline,
    ledger::CauseClock,
    report::EngineId,
    request::{Class, Tenant},
};

/// Which lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct LaneId(u32);

/// Whose lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum LaneName {
    /// The only one.
    Only,
    /// A class's.
    Class(Class),
    /// A tenant's.
    Tenant(Tenant),
    /// No one's turn comes here: requests that wait for an engine that could hold them.
    Aside,
}

/// Place in the order of lanes: lowest first, compared from left to right.
pub(super) type Rank = (i64, u64, u64);

const UNRANKED: Rank = (0, 0, 0);

/// One queue with its clock.
#[derive(Debug)]
pub(super) struct Lane {
    pub name: LaneName,
    /// Runs on the lane's cut.
    pub clock: CauseClock,
    /// Requests that follow `clock`.
    pub followers: usize,
    /// Value of the limit the clock runs on, and the engine whose blocks did not suffice.
    pub charged: (u64, Option<EngineId>),
    /// Its number among all lanes ever made.
    pub serial: u64,
    queue: Queue,
    len: usize,
    rank: Rank,
}

/// The order within a lane.
#[derive(Debug)]
enum Queue {
    Arrival(List),
    Deadline(ByDeadline),
}

impl Lane {
    /// The request at the head.
    pub fn head(&self) -> Option<Slot> {
        match &self.queue {
            Queue::Arrival(list) => list.first(),
            Queue::Deadline(queue) => queue.first(),
        }
    }

    /// Requests in it.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Its requests, from the head on; in no order when it is by deadline.
    pub fn iter<'a>(&'a self, book: &'a Book) -> impl Iterator<Item = Slot> + 'a {
        let (by_arrival, by_deadline) = match &self.queue {
            Queue::Arrival(list) => (Some(list.iter(book)), None),
            Queue::Deadline(queue) => (None, Some(queue.iter(book))),
        };
        by_arrival.into_iter().flatten().chain(by_deadline.into_iter().flatten())
    }
}

/// All lanes that hold a request.
#[derive(Debug)]
pub(super) struct Lanes {
    lanes: Vec<Option<Lane>>,
    unused: Vec<LaneId>,
    made: u64,
    by_name: BTreeMap<LaneName, LaneId>,
    by_rank: BTreeSet<(Rank, LaneId)>,
    by_deadline: bool,
}

impl Lanes {
    /// No lanes yet; they will be ordered by deadline, or by arrival. Serial numbers go on from `made`.
    pub fn new(by_deadline: bool, made: u64) -> Self {
        Self {
            lanes: Vec::new(),
            unused: Vec::new(),
            made,
            by_name: BTreeMap::new(),
            by_rank: BTreeSet::new(),
            by_deadline,
        }
    }

    /// Lanes ever made.
    pub fn made(&self) -> u64 {
        self.made
    }

    /// The lane that is next to be served.
    pub fn first(&self) -> Option<LaneId> {
        self.by_rank.first().map(|(_, id)| *id)
    }

    /// The request whose turn it is.
    pub fn next(&self) -> Option<Slot> {
        self.get(self.first()?).head()
    }

    /// The rank of the lane that is next to be served.
    pub fn lowest_rank(&self) -> Option<Rank> {
        self.by_rank.first().map(|(rank, _)| *rank)
    }

    /// Every lane whose turn comes, by rank.
    pub fn ids(&self) -> impl Iterator<Item = LaneId> + '_ {
        self.by_rank.iter().map(|(_, id)| *id)
    }

    /// The requests set aside, in the order in which they were.
    pub fn aside<'a>(&'a self, book: &'a Book) -> impl Iterator<Item = Slot> + 'a {
        self.find(LaneName::Aside).into_iter().flat_map(move |id| self.get(id).iter(book))
    }

    /// The lane of that name, if it holds a request.
    pub fn find(&self, name: LaneName) -> Option<LaneId> {
        self.by_name.get(&name).copied()
    }

    /// The lane of that name, made when it is not there; a new lane's clock runs on `cause`.
    pub fn find_or_make(&mut self, name: LaneName, cause: Cause, now: Stamp) -> LaneId {
        if let Some(id) = self.find(name) {
            return id;
        }
        let by_deadline = self.by_deadline && name != LaneName::Aside;
        let queue =
            if by_deadline { Queue::Deadline(ByDeadline::EMPTY) } else { Queue::Arrival(List::EMPTY) };
        self.made += 1;
        let clock = CauseClock::new(cause, now);
        let (serial, rank) = (self.made, UNRANKED);
        let lane = Lane { name, clock, followers: 0, charged: (0, None), serial, queue, len: 0, rank };
        let id = self.unused.pop().unwrap_or_else(|| {
            self.lanes.push(None);
            LaneId(self.lanes.len() as u32 - 1)
        });
        self.lanes[id.0 as usize] = Some(lane);
        self.by_name.insert(name, id);
        if name != LaneName::Aside {
            self.by_rank.insert((UNRANKED, id));
        }
        id
    }

    pub fn get(&self, id: LaneId) -> &Lane {
        self.lanes[id.0 as usize].as_ref().expect("lanes are dropped only when empty")
    }

    pub fn get_mut(&mut self, id: LaneId) -> &mut Lane {
        self.lanes[id.0 as usize].as_mut().expect("lanes are dropped only when empty")
    }

    /// Gives a lane its place in the order.
    pub fn set_rank(&mut self, id: LaneId, rank: Rank) {
        let old = std::mem::replace(&mut self.get_mut(id).rank, rank);
        if old != rank {
            self.by_rank.remove(&(old, id));
            self.by_rank.insert((rank, id));
        }
    }

    /// Puts a request at the back of its lane (or where its deadline belongs).
    pub fn push_back(&mut self, book: &mut Book, id: LaneId, slot: Slot) {
        let lane = self.get_mut(id);
        lane.len += 1;
        match &mut lane.queue {
            Queue::Arrival(list) => list.push_back(book, slot),
            Queue::Deadline(queue) => queue.push(book, slot, false),
        }
    }

    /// Puts a request at the front of its lane (or where its deadline belongs).
    pub fn push_front(&mut self, book: &mut Book, id: LaneId, slot: Slot) {
        let lane = self.get_mut(id);
        lane.len += 1;
        match &mut lane.queue {
            Queue::Arrival(list) => list.push_front(book, slot),
            Queue::Deadline(queue) => queue.push(book, slot, true),
        }
    }

    /// Takes a request out; drops the lane when that leaves it empty. Whether the lane is still there.
    pub fn remove(&mut self, book: &mut Book, id: LaneId, slot: Slot) -> bool {
        let lane = self.get_mut(id);
        lane.len -= 1;
        match &mut lane.queue {
            Queue::Arrival(list) => list.remove(book, slot),
            Queue::Deadline(queue) => queue.remove(book, slot),
        }
        if lane.len > 0 {
            return true;
        }
        debug_assert_eq!(lane.followers, 0);
        let (name, rank) = (lane.name, lane.rank);
        self.by_name.remove(&name);
        self.by_rank.remove(&(rank, id));
        self.lanes[id.0 as usize] = None;
        self.unused.push(id);
        false
    }
}
