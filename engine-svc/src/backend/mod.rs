//! What the step loop asks of a machine that executes the model.
//!
//! A backend owns the weights and the pool of KV blocks; the caller owns the bookkeeping: which block
//! belongs to which sequence, and how many positions of it are filled. `cpu` computes, `sim` adds up a cost model.

use firstlight_proto::vocabulary::fingerprint;
use firstlight_sim::planner::ForwardKind;

use crate::sample::Sampling;
use crate::weights::{LoadError, WeightSource};

#[cfg(feature = "torch")]
pub mod cpu;
pub mod cuda;
pub mod options;
pub mod sim;

/// One model on one device, with its pool of KV blocks.
pub trait Backend: Send {
    /// The model, as told to schedulers and to the log.
    fn info(&self) -> &ModelInfo;

    /// The pool of KV blocks, allocated when the backend was made.
    fn kv(&self) -> KvGeometry;

    /// One model execution over `chunks`, prefill and decode alike: keys and values of every row are written to
    /// the chunk's blocks, and a token is sampled for each chunk that asks. Returns one entry per chunk, in order.
    ///
    /// A chunk sees only positions below its own, through its own block table, among them those that chunks before
    /// it in the same call write (a sequence's drafts). Of different sequences, two chunks of one call may share
    /// blocks that both only read.
    ///
    /// # Errors
    /// [`BackendError::Chunk`] names the first chunk that breaks a rule of [`Chunk`]; nothing was written then.
    fn forward(&mut self, chunks: &[Chunk<'_>]) -> Result<Vec<Option<u32>>, BackendError>;

    /// How many rows a decode forward of `rows` rows executes, padding included.
    fn decode_bucket(&self, rows: usize) -> usize {
        rows
    }

    /// Rows of the prompts to run before serving, each number in a forward of its own, besides a short one: sizes for
    /// which something is set up when they come first.
    fn warm_up_rows(&self) -> &[usize] {
        &[]
    }

    /// What the device executed to bring the tokens of the last call of [`Backend::forward`]; nothing where it has no
    /// clock of its own.
    fn device_forwards(&self) -> &[DeviceForward] {
        &[]
    }

    /// Copies the keys and values of block `from` over those of block `to` (copy-on-write of a shared block).
    ///
    /// # Panics
    /// When either block lies outside the pool.
    fn copy_block(&mut self, from: u32, to: u32);
}

/// One execution on a device, by its own clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeviceForward {
    /// What it executed; never both kinds.
    pub kind: ForwardKind,
    /// Its rows, padding included: sequences that decode, or tokens of prompts.
    pub rows: usize,
    /// How long it took, without what it waited for others.
    pub ns: u64,
}

/// Neighbouring positions of one sequence, executed in one forward.
#[derive(Debug, Clone, Copy)]
pub struct Chunk<'a> {
    /// Token ids, at least one, each below [`ModelInfo::vocab_size`].
    pub tokens: &'a [u32],
    /// Position of `tokens[0]`: as many positions have their keys and values in `blocks` already, or get them from
    /// chunks before this one.
    pub start: usize,
    /// Block table: `blocks[i]` holds positions `i * block_tokens ..`. Covers `start + tokens.len()` positions; a block
    /// of the pool behind those is the sequence's own too, and a backend may write the token after these there.
    pub blocks: &'a [u32],
    /// How to sample after the last token; `None` where more of the prompt is to come.
    pub sample: Option<&'a Sampling>,
}

impl Chunk<'_> {
    /// Positions filled once this chunk has run; also the absolute position of the token sampled from it.
    pub fn end(&self) -> usize {
        self.start + self.tokens.len()
    }

    /// Checks the rules of the fields' documentation.
    ///
    /// # Errors
    /// The first rule that is broken.
    pub fn check(&self, model: &ModelInfo, kv: KvGeometry) -> Result<(), ChunkError> {
        let end =
            self.start.checked_add(self.tokens.len()).filter(|&end| end <= model.context_length).ok_or(
                ChunkError::BeyondContext {
                    start: self.start,
                    tokens: self.tokens.len(),
                    context: model.context_length,
                },
            )?;
        if self.tokens.is_empty() {
            return Err(ChunkError::Empty);
        }
        if let Some(&token) = self.tokens.iter().find(|&&token| token as usize >= model.vocab_size) {
            return Err(ChunkError::UnknownToken { token, vocab_size: model.vocab_size });
        }
        let need = end.div_ceil(kv.block_tokens);
        if self.blocks.len() < need {
            return Err(ChunkError::TableTooShort { have: self.blocks.len(), need });
        }
        match self.blocks[..need].iter().find(|&&block| block as usize >= kv.blocks) {
            Some(&block) => Err(ChunkError::BlockOutsidePool { block, blocks: kv.blocks }),
            None => Ok(()),
        }
    }
}

/// What a loaded model is.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelInfo {
    /// Name for people and for requests that name a model.
    pub name: String,
    /// `llama`, `gpt2`, `qwen2`, …; `sim` for the cost model.
    pub architecture: String,
    /// How the weights are held and multiplied: `bf16`, `f32`, `int8`, `q4_1`, …
    pub dtype: String,
    /// Which backend executes it, as told to schedulers: `cpu`, `cuda` or `sim`.
    pub backend: &'static str,
    /// Fingerprint of the vocabulary that came with the weights; empty when they brought none.
    pub tokenizer_hash: String,
    /// Device and kernels that execute it, for the log: `cpu (avx512-bf16)`, `sim`.
    pub device: String,
    /// Token ids are below this.
    pub vocab_size: usize,
    /// Longest prompt plus output, in tokens.
    pub context_length: usize,
    /// Ids that end a sequence.
    pub eos_ids: Vec<u32>,
    /// Bytes of weights held in memory.
    pub weight_bytes: u64,
    /// Threads that execute a forward.
    pub threads: usize,
}

impl ModelInfo {
    /// What `source` says of itself, with a context of at most `context_length` tokens; how and where it is executed
    /// is the backend's to say.
    ///
    /// # Errors
    /// When its vocabulary cannot be read.
    pub fn of(source: &dyn WeightSource, context_length: Option<usize>) -> Result<Self, LoadError> {
        let config = source.config();
        let vocabulary = source.vocabulary()?;
        Ok(Self {
            name: config.name.clone(),
            architecture: config.architecture.clone(),
            dtype: String::new(),
            backend: "",
            tokenizer_hash: vocabulary
                .map_or_else(String::new, |tokens| fingerprint(tokens.iter().map(String::as_str))),
            device: String::new(),
            vocab_size: config.vocab_size,
            context_length: context_length.unwrap_or(usize::MAX).min(config.context_length),
            eos_ids: config.eos_ids.clone(),
            weight_bytes: 0,
            threads: 1,
        })
    }
}

/// The pool of KV blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KvGeometry {
    /// Positions (tokens) per block.
    pub block_tokens: usize,
    /// Blocks in the pool, ids `0..blocks`.
    pub blocks: usize,
    /// Bytes of one block over all layers, keys and values together.
    pub block_bytes: usize,
}

/// Why a forward did not run.
#[derive(Debug, thiserror::Error)]
pub enum BackendError {
    /// A chunk breaks a rule; the caller's bug, nothing was written.
    #[error("chunk {index}: {source}")]
    Chunk {
        /// Place in the slice given to [`Backend::forward`].
        index: usize,
        /// The rule.
        source: ChunkError,
    },
    /// The device failed; the backend cannot be used further.
    #[error("device: {0}")]
    Device(String),
}

/// The rule of [`Chunk`] that is broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ChunkError {
    /// No tokens.
    #[error("no tokens")]
    Empty,
    /// Positions beyond the context length.
    #[error("positions {start} + {tokens} are beyond the context of {context} tokens")]
    BeyondContext {
        /// First position.
        start: usize,
        /// Tokens from there.
        tokens: usize,
        /// Longest prompt plus output.
        context: usize,
    },
    /// A token id outside the vocabulary.
    #[error("token id {token} is outside the vocabulary of {vocab_size}")]
    UnknownToken {
        /// The id.
        token: u32,
        /// Ids are below this.
        vocab_size: usize,
    },
    /// The block table does not cover the chunk.
    #[error("block table has {have} blocks, {need} needed")]
    TableTooShort {
        /// Entries in the table.
        have: usize,
        /// Entries needed.
        need: usize,
    },
    /// A block id outside the pool.
    #[error("KV block {block} is outside the pool of {blocks}")]
    BlockOutsidePool {
        /// The id.
        block: u32,
        /// Ids are below this.
        blocks: usize,
    },
}

/// Checks every chunk of a forward.
///
/// # Errors
/// [`BackendError::Chunk`] for the first chunk that breaks a rule.
pub fn check_chunks(chunks: &[Chunk<'_>], model: &ModelInfo, kv: KvGeometry) -> Result<(), BackendError> {
    for (index, chunk) in chunks.iter().enumerate() {
        chunk.check(model, kv).map_err(|source| BackendError::Chunk { index, source })?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
