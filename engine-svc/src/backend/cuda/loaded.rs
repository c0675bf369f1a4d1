//! The model on a board: the real [`Device`].
//!
//! Everything is queued on one stream. A decode forward is: its rows into the static buffer, the graph of its bucket,
//! its tokens back; the host touches neither the rows nor the tokens of a forward before the event behind it.

use std::collections::HashMap;

use firstlight_cuda::board::{Board, BoardError};
use firstlight_cuda::nvtx::Ranges;

use super::device::{Device, DeviceError, Sampled, Ticket};
use super::inputs::{DecodeInputs, DecodeLayout, PrefillInputs};
use super::ops::CudaOps;
use super::rows::{Rows, decode_rows, prefill_rows};
use crate::model::Decoder;

/// Forwards whose rows and tokens may be under way: three are, one more is being prepared.
const SLOTS: u64 = 4;

/// A model, its KV pool and the buffers of its forwards.
pub struct LoadedModel<B: Board> {
    /// By bucket and the parts of its keys; none where forwards run eagerly. Before the kernels they run, which `ops`
    /// has: fields are dropped in this order.
    graphs: HashMap<(usize, usize), B::Graph>,
    decoder: Decoder<CudaOps<B>>,
    ops: CudaOps<B>,
    buffers: RowBuffers,
    slots: Vec<Slot<B>>,
    ranges: Ranges,
}

/// Where rows and the tokens of prompts lie on the board.
pub(super) struct RowBuffers {
    pub layout: DecodeLayout,
    /// `layout.all_words()` words.
    pub decode: u64,
    pub prefill: u64,
    pub prefill_words: usize,
    /// A token for each row whose logits are wanted.
    pub prefill_tokens: u64,
}

/// What the host has of one forward.
struct Slot<B: Board> {
    rows: B::Pinned,
    tokens: B::Pinned,
    began: B::Event,
    ended: B::Event,
    /// The forward, and how many tokens it brings, until they are asked for.
    waits: Option<(Ticket, usize)>,
}

impl<B: Board> LoadedModel<B> {
    pub(super) fn new(
        decoder: Decoder<CudaOps<B>>,
        mut ops: CudaOps<B>,
        buffers: RowBuffers,
        ranges: Ranges,
    ) -> Result<Self, BoardError> {
        let words = buffers.layout.all_words().max(buffers.prefill_words);
        let tokens = ops.shape().logit_rows;
        let board = &mut ops.board;
        let slots = (0..SLOTS).map(|_| {
            Ok(Slot {
                rows: board.pinned(4 * words)?,
                tokens: board.pinned(4 * tokens)?,
                began: board.event()?,
                ended: board.event()?,
                waits: None,
            })
        });
        let slots = slots.collect::<Result<_, BoardError>>()?;
        Ok(Self { graphs: HashMap::new(), decoder, ops, buffers, slots, ranges })
    }

    /// Captures the graphs of decode forwards of these sizes, over padding that writes to `scratch_block`. Runs each
    /// once before: libraries set themselves up in their first call, which cannot be recorded.
    pub(super) fn capture(&mut self, buckets: &[usize], scratch_block: u32) -> Result<(), BoardError> {
        // The largest first: what it needs serves the others.
        let mut padding = DecodeInputs::new(self.buffers.layout, scratch_block);
        let shape = *self.ops.shape();
        let graphs =
            buckets.iter().rev().flat_map(|&bucket| shape.all_splits().map(move |splits| (bucket, splits)));
        for (bucket, splits) in graphs {
            padding.pad_to(bucket);
            self.ops.board.use_here()?;
            let _range = self.ranges.open_range(|| format!("capture {bucket} rows, keys in {splits}"));
            self.upload_rows(0, padding.words(), self.buffers.decode)?;
            self.run_decode(bucket, splits)?;
            let slot = &mut self.slots[0];
            self.ops.board.record(&mut slot.ended)?;
            self.ops.board.wait(&slot.ended)?;
            self.ops.board.begin_capture()?;
            let ran = self.run_decode(bucket, splits);
            let graph = self.ops.board.end_capture();
            ran?;
            self.graphs.insert((bucket, splits), graph?);
        }
        Ok(())
    }

    fn run_decode(&mut self, bucket: usize, splits: usize) -> Result<(), BoardError> {
        let rows = decode_rows(self.buffers.decode, &self.buffers.layout, bucket, splits);
        self.run(&rows, self.ops.sampled)
    }

    /// Queues a forward over these rows; the tokens go to `tokens`.
    fn run(&mut self, rows: &Rows, tokens: u64) -> Result<(), BoardError> {
        let logits = *self.decoder.forward(&mut self.ops, rows);
        self.ops.sample(rows, &logits, tokens);
        self.ops.check()
    }

    /// The slot of a forward, once what had it before is over.
    fn free_slot(&mut self, ticket: Ticket) -> Result<usize, BoardError> {
        let slot = (ticket.0 % SLOTS) as usize;
        self.ops.board.use_here()?;
        self.ops.board.wait(&self.slots[slot].ended)?;
        Ok(slot)
    }

    fn upload_rows(&mut self, slot: usize, words: &[u32], to: u64) -> Result<(), BoardError> {
        let slot = &mut self.slots[slot];
        // SAFETY: both buffers are as large as the largest forward's rows; the slot's last copy is over.
        unsafe { self.ops.board.upload(&mut slot.rows, bytemuck::cast_slice(words), to) }
    }

    fn finish(&mut self, slot: usize, ticket: Ticket, tokens: usize, from: u64) -> Result<(), BoardError> {
        let slot = &mut self.slots[slot];
        let board = &mut self.ops.board;
        // SAFETY: a forward has no more tokens than there is room for in both; the slot's last copy is over.
        unsafe { board.download(from, 4 * tokens, &mut slot.tokens) }?;
        board.record(&mut slot.ended)?;
        slot.waits = Some((ticket, tokens));
        Ok(())
    }

    fn queue_decode(&mut self, ticket: Ticket, inputs: &DecodeInputs) -> Result<(), BoardError> {
        let slot = self.free_slot(ticket)?;
        self.upload_rows(slot, inputs.words(), self.buffers.decode)?;
        self.ops.board.record(&mut self.slots[slot].began)?;
        let (bucket, splits) = (inputs.bucket(), self.ops.shape().splits_of(inputs.longest()));
        match self.graphs.get(&(bucket, splits)) {
            Some(graph) => self.ops.board.replay(graph)?,
            None => self.run_decode(bucket, splits)?,
        }
        self.finish(slot, ticket, inputs.rows(), self.ops.sampled)
    }

    fn queue_prefill(&mut self, ticket: Ticket, inputs: &PrefillInputs) -> Result<(), BoardError> {
        let slot = self.free_slot(ticket)?;
        let (rows, words) = prefill_rows(self.buffers.prefill, inputs);
        assert!(words.len() <= self.buffers.prefill_words, "{} words of rows", words.len());
        self.upload_rows(slot, &words, self.buffers.prefill)?;
        self.ops.board.record(&mut self.slots[slot].began)?;
        self.run(&rows, self.buffers.prefill_tokens)?;
        self.finish(slot, ticket, inputs.logit_rows.len(), self.buffers.prefill_tokens)
    }

    fn collect(&mut self, ticket: Ticket) -> Result<Sampled, BoardError> {
        let slot = &mut self.slots[(ticket.0 % SLOTS) as usize];
        let Some((_, count)) = slot.waits.take_if(|(waits, _)| *waits == ticket) else {
            return Err(BoardError(format!("forward {} is not under way", ticket.0)));
        };
        let board = &mut self.ops.board;
        board.use_here()?;
        board.wait(&slot.ended)?;
        let milliseconds = board.milliseconds(&slot.began, &slot.ended)?;
        let bytes = board.read(&slot.tokens, 4 * count);
        let token = |bytes: &[u8]| u32::from_ne_bytes(bytes.try_into().expect("four bytes"));
        Ok(Sampled {
            tokens: bytes.chunks_exact(4).map(token).collect(),
            device_ns: (f64::from(milliseconds) * 1e6) as u64,
        })
    }
}

impl<B: Board> Device for LoadedModel<B> {
    fn decode(&mut self, ticket: Ticket, inputs: &DecodeInputs) -> Result<(), DeviceError> {
        let (rows, bucket) = (inputs.rows(), inputs.bucket());
        let _range =
            self.ranges.open_range(|| format!("forward {}: decode {rows} of {bucket} rows", ticket.0));
        Ok(self.queue_decode(ticket, inputs)?)
    }

    fn prefill(&mut self, ticket: Ticket, inputs: &PrefillInputs) -> Result<(), DeviceError> {
        let tokens = inputs.tokens.len();
        let _range = self.ranges.open_range(|| format!("forward {}: prefill {tokens} tokens", ticket.0));
        Ok(self.queue_prefill(ticket, inputs)?)
    }

    fn tokens(&mut self, ticket: Ticket) -> Result<Sampled, DeviceError> {
        let _range = self.ranges.open_range(|| format!("forward {}: wait", ticket.0));
        Ok(self.collect(ticket)?)
    }

    fn copy_block(&mut self, from: u32, to: u32) -> Result<(), DeviceError> {
        let (from, to) = (self.ops.block(from), self.ops.block(to));
        let len = self.ops.shape().kv.block_bytes();
        self.ops.board.use_here()?;
        // SAFETY: two blocks of the pool.
        Ok(unsafe { self.ops.board.copy(from, to, len) }?)
    }
}
