//! The order of eviction: a doubly linked list over block ids, every operation O(1).

const NONE: u32 = u32::MAX;

/// Block ids from the least to the most recently released.
#[derive(Debug, Clone)]
pub(super) struct Lru {
    prev: Vec<u32>,
    next: Vec<u32>,
    head: u32,
    tail: u32,
    len: usize,
}

impl Lru {
    /// An empty list over ids `0..blocks`.
    pub(super) fn new(blocks: usize) -> Self {
        Self { prev: vec![NONE; blocks], next: vec![NONE; blocks], head: NONE, tail: NONE, len: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Appends `id`, which is not in the list, as the most recently released.
    pub(super) fn push(&mut self, id: u32) {
        self.prev[id as usize] = self.tail;
        self.next[id as usize] = NONE;
        match self.tail {
            NONE => self.head = id,
            tail => self.next[tail as usize] = id,
        }
        self.tail = id;
        self.len += 1;
    }

    /// Takes `id`, which is in the list, out of it.
    pub(super) fn remove(&mut self, id: u32) {
        let (prev, next) = (self.prev[id as usize], self.next[id as usize]);
        match prev {
            NONE => self.head = next,
            prev => self.next[prev as usize] = next,
        }
        match next {
            NONE => self.tail = prev,
            next => self.prev[next as usize] = prev,
        }
        self.len -= 1;
    }

    /// Takes the least recently released.
    pub(super) fn pop(&mut self) -> Option<u32> {
        let id = self.head;
        (id != NONE).then(|| {
            self.remove(id);
            id
        })
    }

    /// From the least to the most recently released.
    pub(super) fn iter(&self) -> impl Iterator<Item = u32> {
        let first = (self.head != NONE).then_some(self.head);
        std::iter::successors(first, |&id| Some(self.next[id as usize]).filter(|&next| next != NONE))
    }
}
