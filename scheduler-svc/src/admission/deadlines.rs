//! A queue in order of deadline. Only the requests whose deadlines are near are kept in full order; later ones
//! lie in buckets of time, unordered, until theirs is the nearest. So joining and leaving cost about the same
//! however many wait. Requests without a deadline come last, in order of arrival.

use std::collections::BTreeMap;

use firstlight_proto::clock::Stamp;

use super::book::{Book, List, Slot};

/// Width of a bucket: 2^27 ns, about 0.13 s.
const BUCKET_BITS: u32 = 27;

/// Pending requests by deadline.
#[derive(Debug)]
pub(super) struct ByDeadline {
    /// Everyone due in the bucket `horizon` or before; empty only when `later` is too.
    near: BTreeMap<(Stamp, u64), Slot>,
    horizon: i64,
    /// Each request notes its index in its bucket.
    later: BTreeMap<i64, Vec<Slot>>,
    without: List,
}

impl ByDeadline {
    pub const EMPTY: Self =
        Self { near: BTreeMap::new(), horizon: i64::MIN, later: BTreeMap::new(), without: List::EMPTY };

    /// The request of the earliest deadline; of equal ones, that which came first.
    pub fn first(&self) -> Option<Slot> {
        self.near.first_key_value().map(|(_, slot)| *slot).or(self.without.first())
    }

    /// Puts a request where its deadline belongs; one without joins the back, or the front of those without.
    pub fn push(&mut self, book: &mut Book, slot: Slot, at_front: bool) {
        match book.get(slot).request.deadline {
            None if at_front => self.without.push_front(book, slot),
            None => self.without.push_back(book, slot),
            Some(deadline) if bucket(deadline) <= self.horizon => {
                self.near.insert((deadline, book.get(slot).arrival), slot);
            }
            Some(deadline) => {
                let bucket = self.later.entry(bucket(deadline)).or_default();
                book.get_mut(slot).in_bucket = bucket.len() as u32;
                bucket.push(slot);
                self.draw_near(book);
            }
        }
    }

    /// Takes a request out.
    pub fn remove(&mut self, book: &mut Book, slot: Slot) {
        match book.get(slot).request.deadline {
            None => self.without.remove(book, slot),
            Some(deadline) if bucket(deadline) <= self.horizon => {
                self.near.remove(&(deadline, book.get(slot).arrival));
                self.draw_near(book);
            }
            Some(deadline) => {
                let slots = self.later.get_mut(&bucket(deadline)).expect("its bucket holds it");
                let index = book.get(slot).in_bucket;
                slots.swap_remove(index as usize);
                if let Some(moved) = slots.get(index as usize) {
                    book.get_mut(*moved).in_bucket = index;
                } else if slots.is_empty() {
                    self.later.remove(&bucket(deadline));
                }
            }
        }
    }

    /// All requests, in no order.
    pub fn iter<'a>(&'a self, book: &'a Book) -> impl Iterator<Item = Slot> + 'a {
        let later = self.later.values().flatten().copied();
        self.near.values().copied().chain(later).chain(self.without.iter(book))
    }

    /// Orders the next bucket when no one nearer is left.
    fn draw_near(&mut self, book: &Book) {
        if !self.near.is_empty() {
            return;
        }
        let Some((bucket, slots)) = self.later.pop_first() else {
            self.horizon = i64::MIN;
            return;
        };
        self.horizon = bucket;
        let by_deadline = |slot: Slot| {
            let entry = book.get(slot);
            ((entry.request.deadline.expect("requests in buckets have one"), entry.arrival), slot)
        };
        self.near = slots.into_iter().map(by_deadline).collect();
    }
}

fn bucket(deadline: Stamp) -> i64 {
    deadline.ns() >> BUCKET_BITS
}
