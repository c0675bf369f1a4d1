//! The model on an NVIDIA GPU, as far as it can be decided without one: what runs when, over which rows, in which
//! buffers. Everything that touches a GPU is behind [`Device`].
//!
//! * [`CudaBackend`]: the [`Backend`]
//! * [`device`]: what it asks of a GPU with the model on it
//! * [`bucket`]: the sizes that decode forwards are padded to
//! * [`inputs`]: the rows of a forward, laid out as the device reads them
//! * `ahead`, `place`: the rows that ran before they were asked for, and where their tokens are
//! * [`memory`]: how many KV blocks fit
//! * [`load`]: from weights to a model on a board
//! * [`loaded`]: the model on a board, which is the real [`Device`]
//! * `ops`, `held`, `rows`: its operations, what it holds, its rows
//!
//! A decode forward is followed at once by the next one over the same rows, before the host has seen its tokens: the
//! device works while the step loop publishes and plans. What a sequence has not asked for by then, because it
//! ended, is one wasted row. A row that writes ahead writes only into blocks of its own sequence, past what the books
//! of the pool call filled, so that nothing else reads it; whoever gets the block next writes it anew, later in the
//! same stream.

mod ahead;
pub mod bucket;
pub mod device;
mod held;
pub mod inputs;
pub mod load;
pub mod loaded;
pub mod memory;
mod ops;
mod place;
mod rows;

use std::collections::VecDeque;

use firstlight_sim::planner::ForwardKind;

use super::{Backend, BackendError, Chunk, DeviceForward, KvGeometry, ModelInfo, check_chunks};
use crate::sample::Sampling;
use ahead::{Ahead, Blocks, Row};
use bucket::Buckets;
use device::{Device, DeviceError, Ticket};
use inputs::{DecodeInputs, DecodeLayout, DecodeRow, PrefillInputs, Token};
use place::Place;

/// Forwards whose tokens nobody has asked for: one that ran ahead, one that was missing, and the next over both.
const MOST_IN_FLIGHT: usize = 3;

/// Multiplications of a few and of many rows are different kernels, loaded when they are first called.
const WARM_UP_ROWS: [usize; 2] = [512, 4096];

/// A model on a GPU.
pub struct CudaBackend<D> {
    device: D,
    info: ModelInfo,
    kv: KvGeometry,
    buckets: Buckets,
    inputs: DecodeInputs,
    ahead: Ahead,
    /// Forwards whose tokens are not on the host yet, in the order in which they run.
    in_flight: VecDeque<Flight>,
    last: Ticket,
    limits: ForwardLimits,
    /// Those that the call under way, or the last one, has waited for.
    timed: Vec<DeviceForward>,
}

/// A forward that has been queued.
#[derive(Debug, Clone, Copy)]
struct Flight {
    ticket: Ticket,
    kind: ForwardKind,
    /// Padding included.
    rows: usize,
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
        let (ahead, in_flight, last) = (Ahead::new(kv.blocks), VecDeque::new(), Ticket(0));
        Self { device, info, kv, buckets, inputs, ahead, in_flight, last, limits, timed: Vec::new() }
    }

    /// Gives the model another name than its own files do.
    pub fn rename(&mut self, name: &str) {
        self.info.name = name.to_owned();
    }

    /// Rows that all decode: those that ran ahead are taken as they are, the others run now, and the next forward over
    /// all of them is queued before anything is waited for, unless they are too many for one.
    fn decode(&mut self, chunks: &[Chunk<'_>]) -> Result<Vec<u32>, DeviceError> {
        let mut places: Vec<Option<Place>> =
            chunks.iter().map(|chunk| self.ahead.take(chunk, self.blocks_at(chunk, chunk.start))).collect();
        let missing: Vec<usize> = (0..chunks.len()).filter(|&index| places[index].is_none()).collect();
        for group in missing.chunks(self.buckets.largest()) {
            // Room for this forward and for the one over all rows.
            self.collect_all_but(MOST_IN_FLIGHT - 2, &mut places)?;
            let ticket = self.start(group.iter().map(|&index| &chunks[index]))?;
            for (row, &index) in group.iter().enumerate() {
                places[index] = Some(Place::Device { ticket, row });
            }
        }
        while places.iter().flatten().any(|place| place.is_out_of_reach(self.last)) {
            self.collect(&mut places)?;
        }
        let ahead = self.start_ahead(chunks, &places)?;
        self.collect_all_but(usize::from(ahead), &mut places)?;
        let tokens: Option<Vec<u32>> = places.iter().map(|place| place.and_then(Place::on_host)).collect();
        let tokens = tokens.ok_or_else(|| DeviceError("a row brought no token".to_owned()))?;
        self.know(chunks, &tokens);
        Ok(tokens)
    }

    /// Queues a decode forward whose tokens the host knows.
    fn start<'a, 'b: 'a>(
        &mut self,
        chunks: impl Iterator<Item = &'a Chunk<'b>>,
    ) -> Result<Ticket, DeviceError> {
        self.inputs.clear();
        for chunk in chunks {
            self.ahead.wrote(&self.blocks_at(chunk, chunk.start)[..1]);
            let sampling = chunk.sample.copied().unwrap_or(Sampling::GREEDY);
            let token = Token::Known(chunk.tokens[0]);
            self.inputs.push(DecodeRow { token, position: chunk.start, blocks: chunk.blocks, sampling });
        }
        self.queue()
    }

    /// Queues the forward after the one that `chunks` are of, whose tokens are in `places`. Sequences whose next
    /// position has no block yet, or is beyond the context, are left out. `false` when none is left.
    fn start_ahead(&mut self, chunks: &[Chunk<'_>], places: &[Option<Place>]) -> Result<bool, DeviceError> {
        self.inputs.clear();
        let ticket = Ticket(self.last.0 + 1);
        for (chunk, place) in chunks.iter().zip(places).take(self.buckets.largest()) {
            let (position, Some(&sampling), Some(place)) = (chunk.end(), chunk.sample, place) else {
                continue;
            };
            if self.runs_ahead(chunk) {
                let row = Row { ticket, index: self.inputs.rows(), position, sampling };
                self.ahead.insert(self.blocks_at(chunk, position), row);
                self.inputs.push(DecodeRow {
                    token: place.source(),
                    position,
                    blocks: chunk.blocks,
                    sampling,
                });
            }
        }
        let any = self.inputs.rows() > 0;
        if any {
            self.queue()?;
        }
        Ok(any)
    }

    /// The rows of the forward queued last took in these tokens.
    fn know(&mut self, chunks: &[Chunk<'_>], tokens: &[u32]) {
        for (chunk, &token) in chunks.iter().zip(tokens) {
            if self.runs_ahead(chunk) {
                self.ahead.took_in(self.blocks_at(chunk, chunk.end())[0], chunk.end(), token);
            }
        }
    }

    /// Whether the token after a chunk can take its place before the host has seen it.
    fn runs_ahead(&self, chunk: &Chunk<'_>) -> bool {
        let position = chunk.end();
        let block = chunk.blocks.get(position / self.kv.block_tokens);
        block.is_some_and(|&block| (block as usize) < self.kv.blocks) && position < self.info.context_length
    }

    fn queue(&mut self) -> Result<Ticket, DeviceError> {
        self.last = Ticket(self.last.0 + 1);
        self.inputs.pad_to(self.buckets.of(self.inputs.rows()));
        self.device.decode(self.last, &self.inputs)?;
        let (ticket, rows) = (self.last, self.inputs.bucket());
        self.in_flight.push_back(Flight { ticket, kind: ForwardKind::Decode, rows });
        Ok(ticket)
    }

    /// Waits for the forward that was queued first of those in flight. Gives its tokens, and puts them where rows wait
    /// for them.
    fn collect(&mut self, places: &mut [Option<Place>]) -> Result<Vec<u32>, DeviceError> {
        let Some(Flight { ticket, kind, rows }) = self.in_flight.pop_front() else {
            return Err(DeviceError("a row waits for a forward that never ran".to_owned()));
        };
        let sampled = self.device.tokens(ticket)?;
        self.timed.push(DeviceForward { kind, rows, ns: sampled.device_ns });
        self.ahead.collected(ticket, &sampled.tokens, self.last);
        places.iter_mut().flatten().for_each(|place| place.collected(ticket, &sampled.tokens));
        Ok(sampled.tokens)
    }

    fn collect_all_but(&mut self, left: usize, places: &mut [Option<Place>]) -> Result<(), DeviceError> {
        while self.in_flight.len() > left {
            self.collect(places)?;
        }
        Ok(())
    }

    fn prefill(&mut self, chunks: &[Chunk<'_>]) -> Result<Vec<Option<u32>>, DeviceError> {
        for chunk in chunks {
            let from = chunk.start / self.kv.block_tokens;
            self.ahead.wrote(&chunk.blocks[from..chunk.end().div_ceil(self.kv.block_tokens)]);
        }
        let mut sampled = Vec::new();
        for pass in passes(chunks, self.limits) {
            let inputs = PrefillInputs::new(&pass, self.kv.block_tokens);
            self.last = Ticket(self.last.0 + 1);
            self.device.prefill(self.last, &inputs)?;
            let rows = inputs.tokens.len();
            self.in_flight.push_back(Flight { ticket: self.last, kind: ForwardKind::Prefill, rows });
            // What came before in the stream waits for nothing that the prompt's tokens would not wait for.
            self.collect_all_but(1, &mut [])?;
            sampled.extend(self.collect(&mut [])?);
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

    /// Where a row at `position` of the chunk's sequence writes.
    fn blocks_at(&self, chunk: &Chunk<'_>, position: usize) -> Blocks {
        [position, position.saturating_sub(1)].map(|position| chunk.blocks[position / self.kv.block_tokens])
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
        self.timed.clear();
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
        self.ahead.wrote(&[to]);
        if let Err(error) = self.device.copy_block(from, to) {
            // The forward that reads the block fails as well, and says so to the caller.
            tracing::error!(%error, from, to, "a KV block was not copied");
        }
    }

    fn warm_up_rows(&self) -> &[usize] {
        &WARM_UP_ROWS
    }

    fn device_forwards(&self) -> &[DeviceForward] {
        &self.timed
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
