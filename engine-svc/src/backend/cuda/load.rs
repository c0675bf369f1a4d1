//! From weights to a model on a board, with everything that serving needs in place: nothing is allocated, compiled or
//! captured on the serving path.

use std::time::Duration;

use firstlight_cuda::board::{Board, BoardError};
use firstlight_cuda::kv::{BLOCK_TOKENS, KvLayout};
use firstlight_cuda::nvtx::{NvtxError, Ranges};
use firstlight_cuda::source::HEAD_DIMS;
use firstlight_proto::clock::Clock;

use super::bucket::Buckets;
use super::held::Shape;
use super::inputs::DecodeLayout;
use super::loaded::{LoadedModel, RowBuffers};
use super::memory::{self, DeviceMemory, OutOfMemory};
use super::ops::CudaOps;
use super::rows::prefill_words;
use super::{CudaBackend, ForwardLimits};
use crate::backend::options::CudaOptions;
use crate::backend::{KvGeometry, ModelInfo};
use crate::model::Decoder;
use crate::weights::config::{ModelConfig, Positions};
use crate::weights::{LoadError, WeightSource};

/// Rows of a forward over prompts; more are cut into several.
const PREFILL_ROWS: usize = 4096;
/// Sequences in it.
const PREFILL_CHUNKS: usize = 512;
/// What libraries take for their multiplications, and for each graph.
const LIBRARY_BYTES: u64 = 128 << 20;
const GRAPH_BYTES: u64 = 8 << 20;
/// Token ids have so many bits where the next is chosen.
const MOST_TOKENS: usize = 1 << 24;

/// Why a model is not on the GPU.
#[derive(Debug, thiserror::Error)]
pub enum CudaLoadError {
    /// The weights cannot be read.
    #[error(transparent)]
    Weights(#[from] LoadError),
    /// The kernels are not made for it.
    #[error("{field} {value}: the CUDA kernels need {need}; --backend cpu serves it")]
    Unsupported {
        /// Of the model's configuration.
        field: &'static str,
        /// What it is.
        value: usize,
        /// What it would have to be.
        need: &'static str,
    },
    /// Nothing can be named for a profiler.
    #[error(transparent)]
    Nvtx(#[from] NvtxError),
    /// It does not fit.
    #[error(transparent)]
    OutOfMemory(#[from] OutOfMemory),
    /// Weights, buffers or graphs could not be placed.
    #[error("{what}: {source}{}", hint(.free))]
    Board {
        /// What was being done.
        what: &'static str,
        /// What the board says.
        source: BoardError,
        /// Bytes free by then, if it can tell.
        free: Option<(u64, u64)>,
    },
}

fn hint(memory: &Option<(u64, u64)>) -> String {
    let mib = |bytes: &u64| bytes / (1 << 20);
    memory.as_ref().map_or_else(String::new, |(free, total)| {
        format!(" ({} MiB of {} MiB were free by then)", mib(free), mib(total))
    })
}

/// Loads the weights, sizes the KV pool by what they leave, and captures the graphs of decode forwards.
///
/// # Errors
/// When the kernels are not made for the model, or it does not fit.
pub fn load<B: Board>(
    board: B,
    source: &dyn WeightSource,
    options: &CudaOptions,
) -> Result<CudaBackend<LoadedModel<B>>, CudaLoadError> {
    let config = source.config();
    check(config)?;
    let ranges = if options.nvtx { Ranges::load()? } else { Ranges::off() };
    let info = ModelInfo { device: board.describe(), ..ModelInfo::of(source, options.context_length)? };
    let context_blocks = info.context_length.div_ceil(BLOCK_TOKENS);
    let buckets = Buckets::up_to(options.decode_rows);
    let kv = KvLayout { layers: config.layers, kv_heads: config.kv_heads, head_dim: config.head_dim };
    let limits = ForwardLimits {
        prefill_rows: PREFILL_ROWS,
        prefill_chunks: PREFILL_CHUNKS,
        decode_apart: options.batch_invariant,
    };
    let shape = Shape {
        number: options.number,
        heads: config.heads,
        kv,
        rows: limits.prefill_rows.max(buckets.largest()),
        logit_rows: limits.prefill_chunks.max(buckets.largest()),
        context_blocks,
        batch_invariant: options.batch_invariant,
    };
    let at = |what| move |source| CudaLoadError::Board { what, source, free: None };
    let mut ops = CudaOps::new(board, config, shape).map_err(at("buffers on the GPU"))?;
    let decoder = Decoder::load(&mut ops, source)?;
    ops.check().map_err(|source| {
        let free = ops.board.memory().ok();
        CudaLoadError::Board { what: "weights on the GPU", source, free }
    })?;
    tracing::info!(device = info.device, bytes = ops.weight_bytes(), "weights on the GPU");
    let buffers = row_buffers(&mut ops, &buckets, context_blocks).map_err(at("buffers on the GPU"))?;
    let graphs = if options.graphs { buckets.sizes().len() * shape.all_splits().count() } else { 0 };
    let blocks = place_kv(&mut ops, options, graphs as u64)?;
    let info = ModelInfo {
        dtype: options.number.name().to_lowercase(),
        backend: "cuda",
        weight_bytes: ops.weight_bytes(),
        ..info
    };
    // Weights were copied beside the stream that computes with them.
    ops.board.synchronize().map_err(at("weights on the GPU"))?;
    let mut model = LoadedModel::new(decoder, ops, buffers, ranges).map_err(at("buffers on the host"))?;
    if options.graphs {
        let clock = Clock::new();
        let began = clock.now();
        model.capture(buckets.sizes(), blocks as u32).map_err(at("decode graphs"))?;
        let took = Duration::from_nanos(clock.now().since(began).unsigned_abs());
        tracing::info!(graphs, largest = buckets.largest(), ?took, "decode forwards captured");
    }
    let geometry = KvGeometry { block_tokens: BLOCK_TOKENS, blocks, block_bytes: kv.block_bytes() };
    Ok(CudaBackend::new(model, info, geometry, buckets, limits))
}

/// Whether the kernels are made for such a model.
fn check(config: &ModelConfig) -> Result<(), CudaLoadError> {
    let refuse = |field, value, need| Err(CudaLoadError::Unsupported { field, value, need });
    if !HEAD_DIMS.contains(&config.head_dim) {
        return refuse("head dimension", config.head_dim, "64, 80, 96 or 128");
    }
    if !config.hidden.is_multiple_of(8) {
        return refuse("hidden size", config.hidden, "a multiple of 8");
    }
    if !config.mlp_width.is_multiple_of(8) {
        return refuse("feed-forward width", config.mlp_width, "a multiple of 8");
    }
    if config.vocab_size > MOST_TOKENS {
        return refuse("vocabulary size", config.vocab_size, "at most 16777216");
    }
    match &config.positions {
        Positions::Rotary { inverse_frequencies, .. } if !inverse_frequencies.len().is_multiple_of(2) => {
            refuse("rotated pairs", inverse_frequencies.len(), "an even number")
        }
        _ => Ok(()),
    }
}

fn row_buffers<B: Board>(
    ops: &mut CudaOps<B>,
    buckets: &Buckets,
    context_blocks: usize,
) -> Result<RowBuffers, BoardError> {
    let layout = DecodeLayout::new(buckets.largest(), context_blocks);
    let prefill_words = prefill_words(PREFILL_ROWS, PREFILL_CHUNKS, context_blocks);
    let tokens = ops.shape().logit_rows;
    Ok(RowBuffers {
        layout,
        decode: ops.board.alloc(4 * layout.all_words())?,
        prefill: ops.board.alloc(4 * prefill_words)?,
        prefill_words,
        prefill_tokens: ops.board.alloc(4 * tokens)?,
    })
}

/// Allocates the KV pool, with one block more than it returns, for padding rows.
fn place_kv<B: Board>(
    ops: &mut CudaOps<B>,
    options: &CudaOptions,
    graphs: u64,
) -> Result<usize, CudaLoadError> {
    let failed = |source| CudaLoadError::Board { what: "KV pool", source, free: None };
    let (free, total) = ops.board.memory().map_err(failed)?;
    let memory = DeviceMemory {
        total,
        free,
        weights: ops.weight_bytes(),
        workspace: LIBRARY_BYTES + graphs * GRAPH_BYTES,
    };
    let block_bytes = ops.shape().kv.block_bytes();
    let asked = options.kv_blocks.map(|blocks| blocks as u64);
    let blocks = memory::kv_blocks(memory, options.kv_memory_fraction, block_bytes as u64, asked)? as usize;
    let pool = ops.board.alloc((blocks + 1) * block_bytes).map_err(failed)?;
    ops.place_kv(pool);
    Ok(blocks)
}
