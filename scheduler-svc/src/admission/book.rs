//! The book of requests: one entry for each that is pending or active, reached by key in O(1).
//!
//! Entries lie in pages that never move, so a growing queue costs no copying, and a freed entry is the
//! next to be used. Entries carry the links of the list they are in (a lane, or an engine's members).

use firstlight_proto::clock::Stamp;

use super::{
    cause::ByCause,
    lanes::LaneId,
    ledger::Follow,
    report::EngineId,
    request::{Blocks, Key, Request, Tokens},
};

/// Where an entry lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Slot(u32);

impl Slot {
    /// No entry.
    pub const NONE: Self = Self(u32::MAX);
}

/// All the core knows of one request.
#[derive(Debug)]
pub(super) struct Entry {
    /// What was asked for.
    pub request: Request,
    /// Its number in order of arrival; kept when it is queued anew.
    pub arrival: u64,
    /// When it was first queued.
    pub arrived: Stamp,
    /// Tokens received so far.
    pub generated: Tokens,
    /// How often it was preempted.
    pub preemptions: u8,
    /// Time behind others in earlier pending periods of the same chain, ns.
    pub behind: i64,
    /// Time in attempts lost with their engine, ns.
    pub engine_lost: i64,
    /// Time in preempted attempts, ns.
    pub preempted: i64,
    /// Where it is.
    pub place: Place,
    /// Neighbours in its list.
    pub previous: Slot,
    /// See `previous`.
    pub next: Slot,
    /// Its index in its bucket of deadlines.
    pub in_bucket: u32,
    generation: u32,
}

/// Where a request is.
#[derive(Debug)]
pub(super) enum Place {
    /// Nowhere: the entry is free.
    Free,
    /// In a lane.
    Pending(Pending),
    /// In an engine.
    Active(Active),
}

/// What is known of a pending request.
#[derive(Debug)]
pub(super) struct Pending {
    /// Its lane.
    pub lane: LaneId,
    /// The clock it follows.
    pub follow: Follow,
    /// What that clock showed, less the time by cause the request brought along.
    pub base: ByCause,
    /// When this pending period began.
    pub queued: Stamp,
    /// When it joined this lane: later than `queued` when the policy changed since.
    pub joined: Stamp,
    /// When it first was at the head of its lane.
    pub headed: Option<Stamp>,
    /// Its first round with credit, from when on it is charged its lane's cut.
    pub judged: Option<Stamp>,
}

/// What is known of an active request.
#[derive(Debug)]
pub(super) struct Active {
    /// Its engine.
    pub engine: EngineId,
    /// Its round there.
    pub seq: u64,
    /// When it was admitted.
    pub admitted: Stamp,
    /// Blocks it was promised.
    pub promised: Blocks,
    /// Blocks it can come to hold.
    pub worst: Blocks,
    /// Its number in the history of attempts.
    pub attempt: u64,
    /// Its wait by cause, to be continued if the attempt is lost before the first token.
    pub waited: ByCause,
    /// Withdrawn: only its blocks are waited for.
    pub withdrawn: bool,
}

const PAGE: usize = 1024;

// A queue of a million requests stays within a quarter of a GiB.
const _: () = assert!(Book::BYTES_PER_REQUEST <= 256);

/// All entries.
#[derive(Debug)]
pub(super) struct Book {
    pages: Vec<Box<[Entry]>>,
    free: Slot,
}

impl Book {
    /// Bytes that one pending or active request occupies here.
    pub const BYTES_PER_REQUEST: usize = size_of::<Entry>();

    pub fn new() -> Self {
        Self { pages: Vec::new(), free: Slot::NONE }
    }

    /// Opens an entry; its place is still to be set.
    pub fn open(&mut self, request: Request, arrival: u64, now: Stamp) -> Slot {
        if self.free == Slot::NONE {
            self.grow();
        }
        let slot = self.free;
        let entry = self.get_mut(slot);
        let next_free = std::mem::replace(&mut entry.next, Slot::NONE);
        entry.request = request;
        entry.arrival = arrival;
        entry.arrived = now;
        entry.generated = Tokens(0);
        entry.preemptions = 0;
        (entry.behind, entry.engine_lost, entry.preempted) = (0, 0, 0);
        self.free = next_free;
        slot
    }

    /// Closes an entry; its key is unknown from now on.
    pub fn close(&mut self, slot: Slot) {
        let free = self.free;
        let entry = self.get_mut(slot);
        entry.place = Place::Free;
        entry.generation = entry.generation.wrapping_add(1);
        entry.next = free;
        self.free = slot;
    }

    /// The key of an entry.
    pub fn key(&self, slot: Slot) -> Key {
        Key(u64::from(self.get(slot).generation) << 32 | u64::from(slot.0))
    }

    /// The entry a key names, unless it has left.
    pub fn find(&self, key: Key) -> Option<Slot> {
        let slot = Slot(key.0 as u32);
        let known = (slot.0 as usize) < self.pages.len() * PAGE
            && self.get(slot).generation == (key.0 >> 32) as u32
            && !matches!(self.get(slot).place, Place::Free);
        known.then_some(slot)
    }

    pub fn get(&self, slot: Slot) -> &Entry {
        &self.pages[slot.0 as usize / PAGE][slot.0 as usize % PAGE]
    }

    pub fn get_mut(&mut self, slot: Slot) -> &mut Entry {
        &mut self.pages[slot.0 as usize / PAGE][slot.0 as usize % PAGE]
    }

    /// What is known of a request that is known to be pending.
    pub fn pending(&self, slot: Slot) -> &Pending {
        match &self.get(slot).place {
            Place::Pending(pending) => pending,
            other => unreachable!("entry {slot:?} is in a lane but {other:?}"),
        }
    }

    /// See [`pending`](Self::pending).
    pub fn pending_mut(&mut self, slot: Slot) -> &mut Pending {
        match &mut self.get_mut(slot).place {
            Place::Pending(pending) => pending,
            other => unreachable!("entry {slot:?} is in a lane but {other:?}"),
        }
    }

    fn grow(&mut self) {
        let first = u32::try_from(self.pages.len() * PAGE).expect("fewer than 2^32 requests");
        let page = (first..first + PAGE as u32).map(|i| Entry {
            request: Request::new(Tokens(0), Tokens(0)),
            arrival: 0,
            arrived: Stamp::from_ns(0),
            generated: Tokens(0),
            preemptions: 0,
            behind: 0,
            engine_lost: 0,
            preempted: 0,
            place: Place::Free,
            previous: Slot::NONE,
            next: if i + 1 < first + PAGE as u32 { Slot(i + 1) } else { Slot::NONE },
            in_bucket: 0,
            generation: 0,
        });
        self.pages.push(page.collect());
        self.free = Slot(first);
    }
}

/// A list of entries, linked through them: the ends are O(1), and so is leaving from the middle.
#[derive(Clone, Copy, Debug)]
pub(super) struct List {
    first: Slot,
    last: Slot,
}

impl List {
    pub const EMPTY: Self = Self { first: Slot::NONE, last: Slot::NONE };

    pub fn first(&self) -> Option<Slot> {
        (self.first != Slot::NONE).then_some(self.first)
    }

    pub fn push_back(&mut self, book: &mut Book, slot: Slot) {
        self.link(book, self.last, slot, Slot::NONE);
    }

    pub fn push_front(&mut self, book: &mut Book, slot: Slot) {
        self.link(book, Slot::NONE, slot, self.first);
    }

    pub fn remove(&mut self, book: &mut Book, slot: Slot) {
        let (previous, next) = (book.get(slot).previous, book.get(slot).next);
        match previous {
            Slot::NONE => self.first = next,
            _ => book.get_mut(previous).next = next,
        }
        match next {
            Slot::NONE => self.last = previous,
            _ => book.get_mut(next).previous = previous,
        }
    }

    /// The entries from the first on.
    pub fn iter<'a>(&self, book: &'a Book) -> impl Iterator<Item = Slot> + 'a {
        std::iter::successors(self.first(), |slot| {
            let next = book.get(*slot).next;
            (next != Slot::NONE).then_some(next)
        })
    }

    fn link(&mut self, book: &mut Book, previous: Slot, slot: Slot, next: Slot) {
        let entry = book.get_mut(slot);
        entry.previous = previous;
        entry.next = next;
        match previous {
            Slot::NONE => self.first = slot,
            _ => book.get_mut(previous).next = slot,
        }
        match next {
            Slot::NONE => self.last = slot,
            _ => book.get_mut(next).previous = slot,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(book: &mut Book, arrival: u64) -> Slot {
        let slot = book.open(Request::new(Tokens(1), Tokens(1)), arrival, Stamp::from_ns(0));
        book.get_mut(slot).place = Place::Active(Active {
            engine: EngineId(1),
            seq: 1,
            admitted: Stamp::from_ns(0),
            promised: Blocks(0),
            worst: Blocks(0),
            attempt: 0,
            waited: ByCause::default(),
            withdrawn: false,
        });
        slot
    }

    #[test]
    fn the_key_of_a_closed_entry_is_unknown_though_its_place_is_reused() {
        let mut book = Book::new();
        let slot = open(&mut book, 1);
        let key = book.key(slot);
        assert_eq!(book.find(key), Some(slot));
        book.close(slot);
        assert_eq!(book.find(key), None);
        let again = open(&mut book, 2);
        assert_eq!(again, slot);
        assert_ne!(book.key(again), key);
        assert_eq!(book.find(key), None);
    }

    #[test]
    fn a_list_keeps_its_order_when_entries_leave_from_anywhere() {
        let mut book = Book::new();
        let slots: Vec<_> = (0..6).map(|i| open(&mut book, i)).collect();
        let mut list = List::EMPTY;
        slots[1..].iter().for_each(|s| list.push_back(&mut book, *s));
        list.push_front(&mut book, slots[0]);
        for gone in [0, 3, 5] {
            list.remove(&mut book, slots[gone]);
        }
        assert_eq!(list.iter(&book).collect::<Vec<_>>(), [slots[1], slots[2], slots[4]]);
    }
}
