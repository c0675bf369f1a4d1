//! A device that records what it is asked and computes with tokens instead of numbers: what a place in its KV pool
//! holds is the token that was written there, and the next token is a hash of every token the row attends to. A row
//! that reads a wrong place, or a place that another has overwritten, says something else.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use super::device::{Device, DeviceError, Sampled, Ticket};
use super::inputs::{DecodeInputs, PrefillInputs};

const BLOCK: usize = 16;
/// What the first forward is said to take; the second takes twice as long, and so on.
pub const FORWARD_NS: u64 = 1000;

/// What was asked, in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Call {
    Decode { ticket: u64, rows: usize, bucket: usize, from_device: usize },
    Prefill { ticket: u64, rows: usize },
    Tokens(u64),
    Copy { from: u32, to: u32 },
}

pub struct FakeDevice {
    places: Vec<u32>,
    sampled: Vec<u32>,
    results: HashMap<Ticket, Vec<u32>>,
    calls: Arc<Mutex<Vec<Call>>>,
    vocabulary: u32,
}

/// The token that follows these.
pub fn next_token(history: impl IntoIterator<Item = u32>, vocabulary: u32) -> u32 {
    let hash =
        history.into_iter().fold(0x811c_9dc5_u32, |hash, token| (hash ^ token).wrapping_mul(0x0100_0193));
    (hash >> 7) % vocabulary
}

impl FakeDevice {
    /// With `blocks` blocks and one for padding; what it is asked can be read from the second.
    pub fn new(blocks: usize, vocabulary: u32) -> (Self, Arc<Mutex<Vec<Call>>>) {
        let calls = Arc::default();
        let places = vec![u32::MAX; (blocks + 1) * BLOCK];
        let device = Self {
            places,
            sampled: Vec::new(),
            results: HashMap::new(),
            calls: Arc::clone(&calls),
            vocabulary,
        };
        (device, calls)
    }

    fn record(&self, call: Call) {
        self.calls.lock().unwrap().push(call);
    }

    fn attend(&self, table: &[u32], context: usize) -> u32 {
        let place = |position: usize| table[position / BLOCK] as usize * BLOCK + position % BLOCK;
        next_token((0..context).map(|position| self.places[place(position)]), self.vocabulary)
    }

    fn finish(&mut self, ticket: Ticket, all: Vec<u32>, rows: usize) {
        self.results.insert(ticket, all[..rows].to_vec());
        assert!(self.results.len() <= 3, "more than three forwards whose tokens nobody has asked for");
        self.sampled = all;
    }
}

impl Device for FakeDevice {
    fn decode(&mut self, ticket: Ticket, inputs: &DecodeInputs) -> Result<(), DeviceError> {
        let (layout, words, bucket) = (*inputs.layout(), inputs.words().to_vec(), inputs.bucket());
        let column = |start: usize, row: usize| words[start + row];
        let mut from_device = 0;
        for row in 0..bucket {
            let source = column(layout.sources(), row);
            let token = match source {
                u32::MAX => column(layout.tokens(), row),
                source => self.sampled[source as usize],
            };
            from_device += usize::from(source != u32::MAX);
            self.places[column(layout.slots(), row) as usize] = token;
        }
        let tokens = (0..bucket).map(|row| {
            let table = &words[layout.block_table() + row * layout.table_stride()..][..layout.table_stride()];
            self.attend(table, column(layout.context(), row) as usize)
        });
        let tokens = tokens.collect();
        self.record(Call::Decode { ticket: ticket.0, rows: inputs.rows(), bucket, from_device });
        self.finish(ticket, tokens, inputs.rows());
        Ok(())
    }

    fn prefill(&mut self, ticket: Ticket, inputs: &PrefillInputs) -> Result<(), DeviceError> {
        for (&slot, &token) in inputs.slots.iter().zip(&inputs.tokens) {
            self.places[slot as usize] = token;
        }
        let sequence_of = |row: u32| {
            let tile = |tile: &&firstlight_cuda::arguments::PrefillTile| {
                (tile.first_row..tile.first_row + tile.rows).contains(&(row as i32))
            };
            inputs.tiles.iter().find(tile).expect("every row is in a tile").sequence as usize
        };
        let tokens = inputs.logit_rows.iter().map(|&row| {
            let table = &inputs.block_table[sequence_of(row) * inputs.table_stride..][..inputs.table_stride];
            self.attend(table, inputs.positions[row as usize] as usize + 1)
        });
        let tokens: Vec<u32> = tokens.collect();
        let sampled = tokens.len();
        self.record(Call::Prefill { ticket: ticket.0, rows: inputs.tokens.len() });
        self.finish(ticket, tokens, sampled);
        Ok(())
    }

    fn tokens(&mut self, ticket: Ticket) -> Result<Sampled, DeviceError> {
        self.record(Call::Tokens(ticket.0));
        let tokens = self.results.remove(&ticket);
        let tokens = tokens.ok_or_else(|| DeviceError(format!("{ticket:?} was never queued")))?;
        Ok(Sampled { tokens, device_ns: ticket.0 * FORWARD_NS })
    }

    fn copy_block(&mut self, from: u32, to: u32) -> Result<(), DeviceError> {
        self.record(Call::Copy { from, to });
        let from = from as usize * BLOCK;
        self.places.copy_within(from..from + BLOCK, to as usize * BLOCK);
        Ok(())
    }
}
