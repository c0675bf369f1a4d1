//! The rows that ran before they were asked for, and which of them answer what is asked later.

use std::collections::HashMap;

use super::device::Ticket;
use super::place::Place;
use crate::backend::Chunk;
use crate::sample::Sampling;

/// A row that nobody has asked for within so many forwards is of a sequence that has ended.
const FORWARDS_KEPT: u64 = 64;

/// Rows that ran ahead, by the block that each wrote. A row counts as long as nobody else has written to that block or
/// to the one before it: whoever asks for it then has what it attended to.
#[derive(Debug)]
pub(super) struct Ahead {
    rows: HashMap<u32, Ran>,
    /// How many times each block was written to.
    writes: Vec<u64>,
}

/// Where a row writes: its block, and the block of the position before it, which is the same one within a block.
pub(super) type Blocks = [u32; 2];

/// A row of a forward that ran ahead.
#[derive(Debug, Clone, Copy)]
pub(super) struct Row {
    pub(super) ticket: Ticket,
    /// Its place in that forward.
    pub(super) index: usize,
    pub(super) position: usize,
    pub(super) sampling: Sampling,
}

#[derive(Debug, Clone, Copy)]
struct Ran {
    row: Row,
    blocks: Blocks,
    /// How many times each was written to by then.
    writes: [u64; 2],
    /// The token it took in, once that is known.
    token: Option<u32>,
    /// The token it brought, once that is on the host.
    result: Option<u32>,
}

impl Ahead {
    /// Over a pool of so many blocks.
    pub(super) fn new(blocks: usize) -> Self {
        Self { rows: HashMap::new(), writes: vec![0; blocks] }
    }

    /// Somebody writes to these blocks: what ran ahead in them, or right behind them, is out of date.
    pub(super) fn wrote(&mut self, blocks: &[u32]) {
        for &block in blocks {
            self.writes[block as usize] += 1;
        }
    }

    /// Adds a row that writes there, in place of any other that did.
    pub(super) fn insert(&mut self, blocks: Blocks, row: Row) {
        self.wrote(&blocks[..1]);
        let ran = Ran { row, blocks, writes: self.writes(blocks), token: None, result: None };
        self.rows.insert(blocks[0], ran);
    }

    /// Takes out the row that has run what `chunk` asks for, and says where its token is; `blocks` is where the chunk
    /// writes.
    pub(super) fn take(&mut self, chunk: &Chunk<'_>, blocks: Blocks) -> Option<Place> {
        let ran = self.rows.remove(&blocks[0])?;
        let same = ran.row.position == chunk.start
            && ran.token == Some(chunk.tokens[0])
            && chunk.sample == Some(&ran.row.sampling)
            && ran.blocks == blocks
            && ran.writes == self.writes(blocks);
        let Row { ticket, index, .. } = ran.row;
        same.then(|| ran.result.map_or(Place::Device { ticket, row: index }, Place::Host))
    }

    /// The row at `position` that wrote `block` took in this token.
    pub(super) fn took_in(&mut self, block: u32, position: usize, token: u32) {
        if let Some(ran) = self.rows.get_mut(&block).filter(|ran| ran.row.position == position) {
            ran.token = Some(token);
        }
    }

    /// The tokens of a forward are on the host; `now` is the last that was queued.
    pub(super) fn collected(&mut self, ticket: Ticket, tokens: &[u32], now: Ticket) {
        self.rows.retain(|_, ran| ran.row.ticket.0 + FORWARDS_KEPT > now.0);
        for ran in self.rows.values_mut().filter(|ran| ran.row.ticket == ticket) {
            ran.result = Some(tokens[ran.row.index]);
        }
    }

    fn writes(&self, blocks: Blocks) -> [u64; 2] {
        blocks.map(|block| self.writes[block as usize])
    }
}
