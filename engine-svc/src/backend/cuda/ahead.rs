//! The rows that ran before they were asked for, and which of them answer what is asked later.

use std::collections::HashMap;

use super::device::Ticket;
use crate::backend::Chunk;
use crate::sample::Sampling;

/// A row that nobody has asked for within so many forwards is of a sequence that has ended.
const FORWARDS_KEPT: u64 = 64;

/// Rows that ran ahead, by the block that each wrote: the block is one sequence's alone, so it tells which.
#[derive(Debug, Default)]
pub(super) struct Ahead {
    rows: HashMap<u32, Row>,
    /// The forward whose tokens are not on the host yet.
    pub(super) uncollected: Option<Ticket>,
}

/// A row of a forward that ran ahead.
#[derive(Debug, Clone, Copy)]
pub(super) struct Row {
    pub(super) ticket: Ticket,
    /// Its place in that forward.
    pub(super) index: usize,
    pub(super) position: usize,
    pub(super) sampling: Sampling,
    /// The token it took in, once that is known.
    pub(super) token: Option<u32>,
    /// The token it brought, once that is on the host.
    pub(super) result: Option<u32>,
}

impl Ahead {
    /// Adds a row that wrote `block`; what else ran in that block is out of date.
    pub(super) fn insert(&mut self, block: u32, row: Row) {
        self.rows.insert(block, row);
    }

    /// Takes out the row that has run what `chunk` asks for; `block` is where the chunk writes.
    pub(super) fn take(&mut self, chunk: &Chunk<'_>, block: u32) -> Option<Row> {
        let row = self.rows.remove(&block)?;
        let same = row.position == chunk.start
            && row.token == Some(chunk.tokens[0])
            && chunk.sample == Some(&row.sampling);
        same.then_some(row)
    }

    /// The row that wrote `block` took in this token.
    pub(super) fn took_in(&mut self, block: u32, token: u32) {
        if let Some(row) = self.rows.get_mut(&block) {
            row.token = Some(token);
        }
    }

    /// Others write these blocks: whoever had one does not any more.
    pub(super) fn forget(&mut self, blocks: &[u32]) {
        for block in blocks {
            self.rows.remove(block);
        }
    }

    /// The tokens of a forward are on the host; `now` is the last that was queued.
    pub(super) fn collected(&mut self, ticket: Ticket, tokens: &[u32], now: Ticket) {
        self.rows.retain(|_, row| row.ticket.0 + FORWARDS_KEPT > now.0);
        for row in self.rows.values_mut().filter(|row| row.ticket == ticket) {
            row.result = Some(tokens[row.index]);
        }
    }
}
