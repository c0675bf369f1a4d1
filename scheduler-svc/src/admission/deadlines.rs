//! A queue in order of deadline. Only the requests whose deadlines are near are kept in full order; later ones
//! lie in buckets of time, unordered, until theirs is the nearest. So joining and leaving cost about the same
//! however many wait, in whatever order deadlines come. Requests without one come last, in order of arrival.

use std::collections::BTreeMap;

use firstlight_proto::clock::Stamp;

use super::book::{Book, List, Slot};

/// Width of a bucket: 2^27 ns, about 0.13 s.
const BUCKET_BITS: u32 = 27;

/// Requests near, beyond which the later ones of them are put back in buckets.
const NEAR: usize = 1024;

/// Pending requests by deadline.
#[derive(Debug)]
pub(super) struct ByDeadline {
    /// Everyone due in the bucket `horizon` or before; empty only when `later` is too.
    near: BTreeMap<(Stamp, u64), Slot>,
    horizon: i64,
    /// Requests that joined `near` one by one since it was last made.
    joined_near: usize,
    /// Each request notes its index in its bucket.
    later: BTreeMap<i64, Vec<Slot>>,
    without: List,
}

impl ByDeadline {
    pub const EMPTY: Self = Self {
        near: BTreeMap::new(),
        horizon: i64::MIN,
        joined_near: 0,
        later: BTreeMap::new(),
        without: List::EMPTY,
    };

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
                self.joined_near += 1;
                // Amortised over those that joined, so that one large bucket is not moved to and fro.
                if self.near.len() > NEAR && 2 * self.joined_near > self.near.len() {
                    self.send_away(book);
                }
            }
            Some(deadline) => {
                self.put_later(book, slot, deadline);
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

    fn put_later(&mut self, book: &mut Book, slot: Slot, deadline: Stamp) {
        let slots = self.later.entry(bucket(deadline)).or_default();
        book.get_mut(slot).in_bucket = slots.len() as u32;
        slots.push(slot);
    }

    /// Puts all but the earliest of those near back in buckets.
    fn send_away(&mut self, book: &mut Book) {
        self.joined_near = 0;
        let mut keys = self.near.keys().skip(NEAR / 2);
        let Some(last_kept) = keys.next().map(|(deadline, _)| bucket(*deadline)) else { return };
        let Some(first_away) = keys.find(|(deadline, _)| bucket(*deadline) > last_kept).copied() else {
            return;
        };
        self.horizon = last_kept;
        for ((deadline, _), slot) in self.near.split_off(&first_away) {
            self.put_later(book, slot, deadline);
        }
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
        self.joined_near = 0;
        self.near = slots.into_iter().map(by_deadline).collect();
    }
}

fn bucket(deadline: Stamp) -> i64 {
    deadline.ns() >> BUCKET_BITS
}

#[cfg(test)]
mod tests {
    use super::{
        super::request::{Request, Tokens},
        *,
    };

    #[test]
    fn requests_leave_by_deadline_in_whatever_order_they_come() {
        let mut book = Book::new();
        let mut queue = ByDeadline::EMPTY;
        let mut expected: Vec<(Stamp, u64)> = Vec::new();
        for arrival in 0..20_000_u64 {
            // Rising, falling and repeated deadlines over some minutes.
            let deadline = Stamp::from_ns((arrival * 7_919 % 6_007) as i64 * 40_000_000);
            let request = Request { deadline: Some(deadline), ..Request::new(Tokens(1), Tokens(1)) };
            let slot = book.open(request, arrival, Stamp::from_ns(0));
            queue.push(&mut book, slot, false);
            expected.push((deadline, arrival));
            if arrival % 3 == 0 {
                let first = queue.first().unwrap();
                queue.remove(&mut book, first);
                let entry = book.get(first);
                let gone = (entry.request.deadline.unwrap(), entry.arrival);
                assert_eq!(Some(&gone), expected.iter().min());
                expected.retain(|other| *other != gone);
            }
        }
        assert!(queue.near.len() <= 2 * NEAR, "{} near", queue.near.len());
        assert_eq!(queue.iter(&book).count(), expected.len());
    }
}
