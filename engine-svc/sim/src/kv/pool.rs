//! The pool: who holds which block, what the prefix cache knows, what may be evicted.
//!
//! A block is in exactly one state: *held* (references > 0), *evictable* (none, but the prefix cache knows its
//! content), or *unused*. Free = unused + evictable.

use std::{
    collections::hash_map::{Entry, RandomState},
    hash::{BuildHasher, Hash, Hasher},
};

use rustc_hash::FxHashMap;

use super::{BlockTable, lru::Lru};

/// Copy the content of block `from` over block `to`, before the forward that writes `to`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockCopy {
    /// Shared block, left as it is.
    pub from: u32,
    /// Block of the sequence alone.
    pub to: u32,
}

/// The books of all KV blocks.
#[derive(Debug)]
pub struct KvPool {
    block_tokens: usize,
    blocks: Vec<Block>,
    unused: Vec<u32>,
    evictable: Lru,
    cached: FxHashMap<PrefixHash, u32>,
    hasher: RandomState,
}

/// Identifies a prefix by all its tokens: the hash of a block's tokens chained to its parent's. Keyed anew in
/// each process, so that nobody can prepare two prompts that collide; hits compare the tokens as well.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PrefixHash(u64);

impl PrefixHash {
    const ROOT: Self = Self(0);
}

#[derive(Debug, Clone, Default)]
struct Block {
    refs: u32,
    content: Option<Content>,
}

#[derive(Debug, Clone)]
struct Content {
    hash: PrefixHash,
    parent: PrefixHash,
    tokens: Box<[u32]>,
}

impl KvPool {
    /// A pool of `blocks` unused blocks of `block_tokens` positions each, both at least 1.
    ///
    /// # Panics
    /// When one of them is 0, or block ids do not fit in 32 bits.
    pub fn new(blocks: usize, block_tokens: usize) -> Self {
        assert!(blocks > 0 && block_tokens > 0 && blocks < u32::MAX as usize, "an empty or absurd KV pool");
        Self {
            block_tokens,
            blocks: vec![Block::default(); blocks],
            unused: (0..blocks as u32).rev().collect(),
            evictable: Lru::new(blocks),
            cached: FxHashMap::default(),
            hasher: RandomState::new(),
        }
    }

    /// Positions per block.
    pub fn block_tokens(&self) -> usize {
        self.block_tokens
    }

    /// Blocks in the pool.
    pub fn total(&self) -> usize {
        self.blocks.len()
    }

    /// Blocks that can be had now: unused + evictable.
    pub fn free(&self) -> usize {
        self.unused.len() + self.evictable.len()
    }

    /// Blocks whose content the prefix cache knows, held or evictable.
    pub fn cached(&self) -> usize {
        self.cached.len()
    }

    /// Blocks needed for `positions` positions.
    pub fn blocks_for(&self, positions: usize) -> usize {
        positions.div_ceil(self.block_tokens)
    }

    /// Positions that `table` can hold when it grows into every free block.
    pub fn reach(&self, table: &BlockTable) -> usize {
        (table.len() + self.free()) * self.block_tokens
    }

    /// The chain of hashes of the full blocks of `tokens`.
    pub fn prefix_hashes(&self, tokens: &[u32]) -> Vec<PrefixHash> {
        let mut parent = PrefixHash::ROOT;
        tokens
            .chunks_exact(self.block_tokens)
            .map(|block| {
                parent = self.chain(parent, block);
                parent
            })
            .collect()
    }

    /// How many leading blocks of `tokens` (with their `hashes`) the prefix cache knows.
    pub fn cached_prefix(&self, hashes: &[PrefixHash], tokens: &[u32]) -> usize {
        (0..hashes.len()).take_while(|&i| self.lookup(hashes, tokens, i).is_some()).count()
    }

    /// Takes the longest cached prefix of `tokens`, leaving at least one token to compute. Returns the table, the
    /// positions it fills, and the copy to make when the last block of a wholly cached prompt has to be written.
    pub fn take_prefix(
        &mut self,
        hashes: &[PrefixHash],
        tokens: &[u32],
    ) -> (BlockTable, usize, Option<BlockCopy>) {
        let known = self.cached_prefix(hashes, tokens);
        let whole = known.min(tokens.len().saturating_sub(1) / self.block_tokens);
        let mut table = BlockTable::default();
        for i in 0..whole {
            let id = self.lookup(hashes, tokens, i).expect("counted above");
            self.hold(id);
            table.ids.push(id);
        }
        table.published = whole;
        let copy = (known > whole).then(|| self.copy_of_cached(hashes, tokens, whole)).flatten();
        let filled = match copy {
            Some(copy) => {
                table.ids.push(copy.to);
                // The copy stays private: the cache knows the original.
                table.published = known;
                tokens.len() - 1
            }
            None => whole * self.block_tokens,
        };
        (table, filled, copy)
    }

    /// Grows `table` until it holds `positions` positions. `false`, and nothing changed, when too few blocks are free.
    pub fn extend(&mut self, table: &mut BlockTable, positions: usize) -> bool {
        if positions <= table.len() * self.block_tokens {
            return true;
        }
        let missing = self.blocks_for(positions) - table.len();
        if missing > self.free() {
            return false;
        }
        for _ in 0..missing {
            let id = self.allocate().expect("counted above");
            table.ids.push(id);
        }
        true
    }

    /// Gives back the blocks of `table` behind those that hold `positions` positions: nothing was computed into them.
    pub fn shrink(&mut self, table: &mut BlockTable, positions: usize) {
        let kept = self.blocks_for(positions).max(table.published).min(table.len());
        for id in table.ids.split_off(kept).into_iter().rev() {
            self.drop_reference(id);
        }
    }

    /// Tells the prefix cache about the blocks of `table` that are full now that the first `computed` of `tokens`
    /// have their keys and values. `hashes` is extended as blocks of generated tokens fill up.
    pub fn publish(
        &mut self,
        table: &mut BlockTable,
        hashes: &mut Vec<PrefixHash>,
        tokens: &[u32],
        computed: usize,
    ) {
        for i in table.published..computed / self.block_tokens {
            let parent = parent_of(hashes, i);
            let block = &tokens[i * self.block_tokens..(i + 1) * self.block_tokens];
            if i == hashes.len() {
                hashes.push(self.chain(parent, block));
            }
            let (hash, id) = (hashes[i], table.ids[i]);
            // Another sequence may have computed the same block meanwhile: the first one stays known.
            if let Entry::Vacant(entry) = self.cached.entry(hash) {
                entry.insert(id);
                self.blocks[id as usize].content = Some(Content { hash, parent, tokens: block.into() });
            }
            table.published = i + 1;
        }
    }

    /// Gives back every block of `table`. Blocks the prefix cache knows become evictable, the deepest first.
    pub fn release(&mut self, table: BlockTable) {
        for id in table.ids.into_iter().rev() {
            self.drop_reference(id);
        }
    }

    /// Checks the books against the tables of every sequence that holds blocks.
    ///
    /// # Errors
    /// The first block whose books are wrong.
    pub fn check_integrity<'a>(
        &self,
        tables: impl IntoIterator<Item = &'a BlockTable>,
    ) -> Result<(), IntegrityError> {
        let mut refs = vec![0u32; self.total()];
        for &id in tables.into_iter().flat_map(|table| &table.ids) {
            refs[id as usize] += 1;
        }
        let mut free = vec![0u8; self.total()];
        for &id in &self.unused {
            free[id as usize] += 1;
        }
        let mut evictable = vec![0u8; self.total()];
        for id in self.evictable.iter() {
            evictable[id as usize] += 1;
        }
        for (id, block) in self.blocks.iter().enumerate() {
            let known =
                block.content.as_ref().is_some_and(|c| self.cached.get(&c.hash) == Some(&(id as u32)));
            let state = (block.refs > 0, known, free[id], evictable[id]);
            let sound = matches!(state, (true, _, 0, 0) | (false, true, 0, 1) | (false, false, 1, 0));
            if refs[id] != block.refs || !sound || block.content.is_some() != known {
                return Err(IntegrityError { block: id, held_by: refs[id], refs: block.refs });
            }
        }
        let contents = self.blocks.iter().filter(|block| block.content.is_some()).count();
        if contents != self.cached.len() {
            return Err(IntegrityError { block: self.total(), held_by: 0, refs: 0 });
        }
        Ok(())
    }

    fn chain(&self, parent: PrefixHash, block: &[u32]) -> PrefixHash {
        let mut hasher = self.hasher.build_hasher();
        parent.hash(&mut hasher);
        block.hash(&mut hasher);
        PrefixHash(hasher.finish())
    }

    fn lookup(&self, hashes: &[PrefixHash], tokens: &[u32], i: usize) -> Option<u32> {
        let id = *self.cached.get(hashes.get(i)?)?;
        let content = self.blocks[id as usize].content.as_ref()?;
        let block = &tokens[i * self.block_tokens..(i + 1) * self.block_tokens];
        (content.parent == parent_of(hashes, i) && *content.tokens == *block).then_some(id)
    }

    /// A private copy of cached block `i`; `None` when no block is free for it.
    fn copy_of_cached(&mut self, hashes: &[PrefixHash], tokens: &[u32], i: usize) -> Option<BlockCopy> {
        let from = self.lookup(hashes, tokens, i)?;
        // Held while allocating, so that the original is not evicted to make room for its own copy.
        self.hold(from);
        let to = self.allocate();
        self.drop_reference(from);
        to.map(|to| BlockCopy { from, to })
    }

    /// A block with one reference and no content: an unused one, else the least recently used evictable one.
    fn allocate(&mut self) -> Option<u32> {
        let id = self.unused.pop().or_else(|| {
            let id = self.evictable.pop()?;
            let content = self.blocks[id as usize].content.take().expect("evictable blocks are cached");
            self.cached.remove(&content.hash);
            Some(id)
        })?;
        self.blocks[id as usize].refs = 1;
        Some(id)
    }

    fn hold(&mut self, id: u32) {
        let block = &mut self.blocks[id as usize];
        if block.refs == 0 {
            self.evictable.remove(id);
        }
        block.refs += 1;
    }

    fn drop_reference(&mut self, id: u32) {
        let block = &mut self.blocks[id as usize];
        block.refs -= 1;
        if block.refs == 0 {
            match block.content {
                Some(_) => self.evictable.push(id),
                None => self.unused.push(id),
            }
        }
    }
}

fn parent_of(hashes: &[PrefixHash], i: usize) -> PrefixHash {
    i.checked_sub(1).map_or(PrefixHash::ROOT, |parent| hashes[parent])
}

/// The pool's books do not add up: a defect of ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("KV block {block}: {refs} references in the books, {held_by} tables hold it")]
pub struct IntegrityError {
    /// The block; the pool's size when it is the cache's own index that is wrong.
    pub block: usize,
    /// Tables that hold it.
    pub held_by: u32,
    /// References in the books.
    pub refs: u32,
}
