//! The sequences of one attachment, by the handles that name them to the engine.

use rustc_hash::FxHashMap;

use super::inflight::Place;

/// Who sits where.
#[derive(Debug)]
pub struct Seats<P = Place> {
    taken: FxHashMap<u32, P>,
    next: u32,
}

impl<P> Default for Seats<P> {
    fn default() -> Self {
        Self { taken: FxHashMap::default(), next: 1 }
    }
}

impl<P: Copy> Seats<P> {
    /// A handle that no sequence has; after 2^32 of them they start over.
    pub fn take(&mut self, place: P) -> u32 {
        while self.taken.contains_key(&self.next) {
            self.next = self.next.wrapping_add(1);
        }
        let handle = self.next;
        self.next = handle.wrapping_add(1);
        self.taken.insert(handle, place);
        handle
    }

    /// Who has a handle.
    pub fn get(&self, handle: u32) -> Option<P> {
        self.taken.get(&handle).copied()
    }

    /// Who had it: it is free now.
    pub fn leave(&mut self, handle: u32) -> Option<P> {
        self.taken.remove(&handle)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handles_start_over_after_the_last_and_none_is_given_that_is_taken() {
        let mut seats = Seats::default();
        assert_eq!([seats.take('a'), seats.take('b'), seats.take('c')], [1, 2, 3]);
        seats.leave(2);
        seats.next = u32::MAX;
        assert_eq!([seats.take('d'), seats.take('e'), seats.take('f')], [u32::MAX, 0, 2]);
        assert_eq!((seats.get(1), seats.get(2), seats.take('g')), (Some('a'), Some('f'), 4));
    }
}
