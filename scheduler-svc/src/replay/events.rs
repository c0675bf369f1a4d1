//! What is going to happen, in order of time; what happens at the same time, in the order it was decided.

use std::{
    cmp::{Ordering, Reverse},
    collections::BinaryHeap,
};

use firstlight_proto::clock::Stamp;

/// Events that lie ahead.
#[derive(Debug)]
pub struct Events<E> {
    heap: BinaryHeap<Reverse<Scheduled<E>>>,
    decided: u64,
}

#[derive(Debug)]
struct Scheduled<E> {
    at: Stamp,
    order: u64,
    event: E,
}

impl<E> Default for Events<E> {
    fn default() -> Self {
        Self { heap: BinaryHeap::new(), decided: 0 }
    }
}

impl<E> Events<E> {
    /// `event` will happen at `at`.
    pub fn at(&mut self, at: Stamp, event: E) {
        self.decided += 1;
        self.heap.push(Reverse(Scheduled { at, order: self.decided, event }));
    }

    /// When the next one happens.
    pub fn next_at(&self) -> Option<Stamp> {
        self.heap.peek().map(|Reverse(next)| next.at)
    }

    /// The next one, if it happens by `now`.
    pub fn take(&mut self, now: Stamp) -> Option<E> {
        self.next_at().filter(|at| *at <= now)?;
        self.heap.pop().map(|Reverse(next)| next.event)
    }
}

impl<E> Ord for Scheduled<E> {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.at, self.order).cmp(&(other.at, other.order))
    }
}

impl<E> PartialOrd for Scheduled<E> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<E> PartialEq for Scheduled<E> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl<E> Eq for Scheduled<E> {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_of_one_moment_keep_the_order_in_which_they_were_decided() {
        let mut events = Events::default();
        let at = Stamp::from_ns;
        for (ns, name) in [(5, "b"), (5, "c"), (3, "a"), (9, "d")] {
            events.at(at(ns), name);
        }
        let by_five: Vec<_> = std::iter::from_fn(|| events.take(at(5))).collect();
        assert_eq!((by_five, events.next_at()), (vec!["a", "b", "c"], Some(at(9))));
    }
}
