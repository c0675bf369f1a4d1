//! The model on an NVIDIA GPU, as far as it can be decided without one: what runs when, over which rows, in which
//! buffers. Everything that touches a GPU is behind [`Device`].
//!
//! * [`CudaBackend`]: the [`Backend`]
//! * [`device`]: what it asks of a GPU with the model on it
//! * [`bucket`]: the sizes that decode forwards are padded to
//! * [`inputs`]: the rows of a forward, laid out as the device reads them
//! * `ahead`: the rows that ran before they were asked for
//! * [`memory`]: how many KV blocks fit
//! * [`load`]: from weights to a model on a board
//! * [`loaded`]: the model on a board, which is the real [`Device`]
//! * `ops`, `held`, `rows`: its operations, what it holds, its rows
//!
//! A decode forward is followed at once by the next one over the same rows, before the host has seen its tokens: the
//! device works while the step loop publishes and plans. What a sequence has not asked for by then, because it
//! ended, is one wasted row. A row that writes ahead writes only into the block that its sequence has just written,
//! past what the books of the pool call filled, so that nothing else reads it; whoever gets the block next writes it
//! anew, later in the same stream.

mod ahead;
pub mod bucket;
pub mod device;
mod held;
pub mod inputs;
pub mod load;
pub mod loaded;
pub mod memory;
mod ops;
mod rows;

use super::{Backend, BackendError, Chunk, KvGeometry, ModelInfo, check_chunks};
use crate::sample::Sampling;
use ahead::{Ahead, Row};
use bucket::Buckets;
use device::{Device, DeviceError, Ticket};
use inputs::{DecodeInputs, DecodeLayout, DecodeRow, PrefillInputs, Token};

/// A model on a GPU.
pub struct CudaBackend<D> {
    device: D,
    info: ModelInfo,
    kv: KvGeometry,
    buckets: Buckets,
    inputs: DecodeInputs,
    ahead: Ahead,
    last: Ticket,
    limits: ForwardLimits,
    device_ns: u64,
}

/// What forwards may hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ForwardLimits {
    /// Rows of a forward over prompts; more are cut into several.
    pub prefill_rows: usize,
    /// Its chunks.
    pub prefill_chunks: usize,
    /// Whether rows that decode have forwards of their own even where prompts are asked for with them: the two kinds
    /// of attention round differently, so that a row's result would depend on its company.
    pub decode_apart: bool,
}

impl<D: Device> CudaBackend<D> {
    /// A model that `device` holds, with `kv.blocks` blocks for sequences and one more, the last, for padding rows.
    pub fn new(device: D, info: ModelInfo, kv: KvGeometry, buckets: Buckets, limits: ForwardLimits) -> Self {
        let layout = DecodeLayout::new(buckets.largest(), info.context_length.div_ceil(kv.block_tokens));
        let inputs = DecodeInputs::new(layout, kv.blocks as u32);
        let (ahead, last) = (Ahead::default(), Ticket(0));
        Self { device, info, kv, buckets, inputs, ahead, last, limits, device_ns: 0 }
    }

    /// Gives the model another name than its own files do.
    pub fn rename(&mut self, name: &str) {
        self.info.name = name.to_owned();
    }

    /// The tokens of a forward, and its time to the account.
    fn tokens(&mut self, ticket: Ticket) -> Result<Vec<u32>, DeviceError> {
        let sampled = self.device.tokens(ticket)?;
        self.device_ns += sampled.device_ns;
        Ok(sampled.tokens)
    }

    /// Rows that all decode: those that ran ahead are collected, the others run now, and the next forward over all of
    /// them is queued, if it can be before their tokens are here.
    fn decode(&mut self, chunks: &[Chunk<'_>]) -> Result<Vec<u32>, DeviceError> {
        let found: Vec<Option<Row>> =
            chunks.iter().map(|chunk| self.ahead.take(chunk, self.block_of(chunk, chunk.start))).collect();
        let missing: Vec<Chunk<'_>> =
            chunks.iter().zip(&found).filter(|(_, row)| row.is_none()).map(|(chunk, _)| *chunk).collect();
        if missing.len() == chunks.len() && missing.len() <= self.buckets.largest() {
            let ticket = self.start(&missing)?;
            self.collect_ahead()?;
            return self.overlap(chunks, ticket, |index| index);
        }
        if let Some(ticket) = self.in_flight(&found) {
            return self.overlap(chunks, ticket, |index| found[index].map_or(0, |row| row.index));
        }
        let mut late = Vec::new();
        let collected = self.ahead.uncollected;
        let mut fresh = Vec::new();
        for group in missing.chunks(self.buckets.largest()) {
            let ticket = self.start(group)?;
            late.extend(self.collect_ahead()?);
            fresh.extend(self.tokens(ticket)?);
        }
        late.extend(self.collect_ahead()?);
        let mut fresh = fresh.into_iter();
        let token = |row: &Option<Row>| match row {
            Some(row) => row.result.or_else(|| (Some(row.ticket) == collected).then(|| late[row.index])),
            None => fresh.next(),
        };
        let tokens: Option<Vec<u32>> = found.iter().map(token).collect();
        let tokens = tokens.ok_or_else(|| DeviceError("a row that ran ahead brought no token".to_owned()))?;
        self.start_ahead(chunks, |index| Token::Known(tokens[index]))?;
        self.know(chunks, &tokens);
        Ok(tokens)
    }

    /// The forward that holds all of these rows, if it is the last one queued and still in flight: then the next can
    /// read its tokens on the device.
    fn in_flight(&self, rows: &[Option<Row>]) -> Option<Ticket> {
        let ticket = self.ahead.uncollected.filter(|&ticket| ticket == self.last)?;
        rows.iter().all(|row| row.is_some_and(|row| row.ticket == ticket)).then_some(ticket)
    }

    /// Queues the forward after `ticket`, in which chunk `i` is row `row(i)`, then waits for the tokens of `ticket`.
    fn overlap(
        &mut self,
        chunks: &[Chunk<'_>],
        ticket: Ticket,
        row: impl Fn(usize) -> usize,
    ) -> Result<Vec<u32>, DeviceError> {
        self.start_ahead(chunks, |index| Token::SampledIn(row(index)))?;
        let all = self.tokens(ticket)?;
        self.ahead.uncollected = self.ahead.uncollected.filter(|&uncollected| uncollected != ticket);
        self.ahead.collected(ticket, &all, self.last);
        let tokens: Vec<u32> = (0..chunks.len()).map(|index| all[row(index)]).collect();
        self.know(chunks, &tokens);
        Ok(tokens)
    }

    /// Queues a decode forward whose tokens the host knows.
    fn start(&mut self, chunks: &[Chunk<'_>]) -> Result<Ticket, DeviceError> {
        self.inputs.clear();
        for chunk in chunks {
            let sampling = chunk.sample.copied().unwrap_or(Sampling::GREEDY);
            let token = Token::Known(chunk.tokens[0]);
            self.inputs.push(DecodeRow { token, position: chunk.start, blocks: chunk.blocks, sampling });
        }
        self.queue()
    }

    /// Queues the forward after the one that `chunks` are of. Sequences whose next position has no block yet, or is
    /// beyond the context, are left out.
    fn start_ahead(
        &mut self,
        chunks: &[Chunk<'_>],
        token: impl Fn(usize) -> Token,
    ) -> Result<(), DeviceError> {
        self.inputs.clear();
        let ticket = Ticket(self.last.0 + 1);
        for (index, chunk) in chunks.iter().enumerate().take(self.buckets.largest()) {
            let (position, Some(&sampling)) = (chunk.end(), chunk.sample) else { continue };
            // In the block that the chunk itself writes: nobody else has it.
            let same_block = !position.is_multiple_of(self.kv.block_tokens);
            if same_block && position < self.info.context_length {
                let row =
                    Row { ticket, index: self.inputs.rows(), position, sampling, token: None, result: None };
                self.ahead.insert(self.block_of(chunk, position), row);
                self.inputs.push(DecodeRow { token: token(index), position, blocks: chunk.blocks, sampling });
            }
        }
        if self.inputs.rows() > 0 {
            self.ahead.uncollected = Some(self.queue()?);
        }
        Ok(())
    }

    /// The rows of the forward queued last took in these tokens.
    fn know(&mut self, chunks: &[Chunk<'_>], tokens: &[u32]) {
        for (chunk, &token) in chunks.iter().zip(tokens) {
            if !chunk.end().is_multiple_of(self.kv.block_tokens) {
                self.ahead.took_in(self.block_of(chunk, chunk.end()), token);
            }
        }
    }

    fn queue(&mut self) -> Result<Ticket, DeviceError> {
        self.last = Ticket(self.last.0 + 1);
        self.inputs.pad_to(self.buckets.of(self.inputs.rows()));
        self.device.decode(self.last, &self.inputs)?;
        Ok(self.last)
    }

    /// Brings the tokens of the forward that ran ahead to the host, if they are not there yet.
    fn collect_ahead(&mut self) -> Result<Vec<u32>, DeviceError> {
        let Some(ticket) = self.ahead.uncollected.take() else { return Ok(Vec::new()) };
        let tokens = self.tokens(ticket)?;
        self.ahead.collected(ticket, &tokens, self.last);
        Ok(tokens)
    }

    fn prefill(&mut self, chunks: &[Chunk<'_>]) -> Result<Vec<Option<u32>>, DeviceError> {
        for chunk in chunks {
            let from = chunk.start / self.kv.block_tokens;
            self.ahead.forget(&chunk.blocks[from..chunk.end().div_ceil(self.kv.block_tokens)]);
        }
        let mut sampled = Vec::new();
        for pass in passes(chunks, self.limits) {
            let inputs = PrefillInputs::new(&pass, self.kv.block_tokens);
            self.last = Ticket(self.last.0 + 1);
            self.device.prefill(self.last, &inputs)?;
            // It came before in the stream, so this waits for nothing that the prompt's tokens would not wait for.
            self.collect_ahead()?;
            sampled.extend(self.tokens(self.last)?);
        }
        let mut sampled = sampled.into_iter();
        Ok(chunks.iter().map(|chunk| chunk.sample.and_then(|_| sampled.next())).collect())
    }

    /// The rows that decode in a forward of their own.
    fn apart(
        &mut self,
        chunks: &[Chunk<'_>],
        decodes: impl Fn(&&Chunk<'_>) -> bool,
    ) -> Result<Vec<Option<u32>>, DeviceError> {
        let (decoding, prompts): (Vec<Chunk<'_>>, Vec<Chunk<'_>>) =
            chunks.iter().partition(|chunk| decodes(chunk));
        let mut decoded = self.decode(&decoding)?.into_iter().map(Some);
        let mut prefilled = self.prefill(&prompts)?.into_iter();
        let token = |chunk: &Chunk<'_>| if decodes(&chunk) { decoded.next() } else { prefilled.next() };
        Ok(chunks.iter().map(token).map(Option::flatten).collect())
    }

    fn block_of(&self, chunk: &Chunk<'_>, position: usize) -> u32 {
        chunk.blocks[position / self.kv.block_tokens]
    }
}

impl<D: Device> Backend for CudaBackend<D> {
    fn info(&self) -> &ModelInfo {
        &self.info
    }

    fn kv(&self) -> KvGeometry {
        self.kv
    }

    fn forward(&mut self, chunks: &[Chunk<'_>]) -> Result<Vec<Option<u32>>, BackendError> {
        check_chunks(chunks, &self.info, self.kv)?;
        self.device_ns = 0;
        let decodes = |chunk: &&Chunk<'_>| chunk.tokens.len() == 1 && chunk.sample.is_some();
        let tokens = match chunks.iter().filter(decodes).count() {
            all if all == chunks.len() => {
                self.decode(chunks).map(|tokens| tokens.into_iter().map(Some).collect())
            }
            0 => self.prefill(chunks),
            _ if self.limits.decode_apart => self.apart(chunks, decodes),
            _ => self.prefill(chunks),
        };
        tokens.map_err(|error| BackendError::Device(error.to_string()))
    }

    fn decode_bucket(&self, rows: usize) -> usize {
        self.buckets.padded(rows)
    }

    fn copy_block(&mut self, from: u32, to: u32) {
        assert!((from.max(to) as usize) < self.kv.blocks, "block {from} or {to} outside the pool");
        self.ahead.forget(&[to]);
        if let Err(error) = self.device.copy_block(from, to) {
            // The forward that reads the block fails as well, and says so to the caller.
            tracing::error!(%error, from, to, "a KV block was not copied");
        }
    }

    fn device_ns(&self) -> u64 {
        self.device_ns
    }
}

/// Cuts `chunks` into forwards that keep to the limits, in the same order. A chunk that is cut samples in its last
/// part.
fn passes<'a>(chunks: &[Chunk<'a>], limits: ForwardLimits) -> Vec<Vec<Chunk<'a>>> {
    let mut passes = vec![Vec::new()];
    let mut rows = 0;
    for chunk in chunks {
        let (mut tokens, mut start) = (chunk.tokens, chunk.start);
        while !tokens.is_empty() {
            let pass = passes.last_mut().expect("there is one from the start");
            if rows == limits.prefill_rows || pass.len() == limits.prefill_chunks {
                passes.push(Vec::new());
                rows = 0;
                continue;
            }
            let (now, later) = tokens.split_at(tokens.len().min(limits.prefill_rows - rows));
            let sample = chunk.sample.filter(|_| later.is_empty());
            pass.push(Chunk { tokens: now, start, blocks: chunk.blocks, sample });
            (rows, tokens, start) = (rows + now.len(), later, start + now.len());
        }
    }
    passes
}

#[cfg(test)]
mod fake;
#[cfg(test)]
mod tests;
