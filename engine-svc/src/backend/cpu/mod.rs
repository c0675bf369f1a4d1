//! The model on this machine's cores: kernels of our own, and libtorch where they have none for the machine.
//!
//! * [`CpuBackend`]: the [`Backend`]
//! * `ops`: the operations of the model on rows in memory
//! * `linear`, `torch`: the two ways to multiply
//! * `step`: the rows of one forward

mod linear;
mod ops;
mod step;
mod torch;

use firstlight_kernels::kv::{BLOCK_TOKENS, KvLayout};
use firstlight_kernels::pool::Pool;

use super::options::CpuOptions;
use super::{Backend, BackendError, Chunk, KvGeometry, ModelInfo, check_chunks};
use crate::model::Decoder;
use crate::weights::{LoadError, WeightSource};
use ops::CpuOps;
use step::{LogitRows, Step, sequences};

/// A model loaded for this machine's cores.
pub struct CpuBackend {
    decoder: Decoder<CpuOps>,
    ops: CpuOps,
    info: ModelInfo,
    kv: KvGeometry,
}

impl CpuBackend {
    /// Loads the weights and allocates the KV pool.
    ///
    /// # Errors
    /// Names the weight that is missing or wrong.
    pub fn load(source: &dyn WeightSource, options: &CpuOptions) -> Result<Self, LoadError> {
        let config = source.config();
        let layout = KvLayout {
            layers: config.layers,
            kv_heads: config.kv_heads,
            head_dim: config.head_dim,
            blocks: options.kv_blocks,
            kv_type: options.dtype.kv_type(),
        };
        let pool = Pool::new(options.threads);
        let mut ops = CpuOps::new(pool, config.heads, layout, options);
        let decoder = Decoder::load(&mut ops, source)?;
        ops.allocate_kv(layout.blocks);
        let info = ModelInfo {
            dtype: ops.dtype(),
            backend: "cpu",
            device: ops.describe(),
            weight_bytes: ops.weight_bytes(),
            threads: options.threads,
            ..ModelInfo::of(source, options.context_length)?
        };
        let kv = KvGeometry {
            block_tokens: BLOCK_TOKENS,
            blocks: layout.blocks,
            block_bytes: layout.block_bytes(),
        };
        Ok(Self { decoder, ops, info, kv })
    }

    /// Gives the model another name than its own files do.
    pub fn rename(&mut self, name: &str) {
        self.info.name = name.to_owned();
    }

    /// The logits after every token of `chunk`, `[tokens, vocabulary]`; for perplexity and for tests.
    ///
    /// # Errors
    /// As [`Backend::forward`].
    pub fn logits(&mut self, chunk: Chunk<'_>) -> Result<Vec<f32>, BackendError> {
        let chunks = [chunk];
        check_chunks(&chunks, &self.info, self.kv)?;
        let sequences = sequences(&chunks);
        let step = Step::new(&self.ops, &chunks, &sequences, LogitRows::All);
        Ok(self.decoder.forward(&mut self.ops, &step).as_slice().to_vec())
    }
}

impl Backend for CpuBackend {
    fn info(&self) -> &ModelInfo {
        &self.info
    }

    fn kv(&self) -> KvGeometry {
        self.kv
    }

    fn forward(&mut self, chunks: &[Chunk<'_>]) -> Result<Vec<Option<u32>>, BackendError> {
        check_chunks(chunks, &self.info, self.kv)?;
        let sequences = sequences(chunks);
        let step = Step::new(&self.ops, chunks, &sequences, LogitRows::Sampled);
        let logits = self.decoder.forward(&mut self.ops, &step);
        Ok(self.ops.sample(chunks, logits))
    }

    fn copy_block(&mut self, from: u32, to: u32) {
        self.ops.copy_block(from, to);
    }
}
