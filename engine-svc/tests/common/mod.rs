//! A loaded model, and continuations made the way the step loop makes them.
#![allow(dead_code, reason = "each test program uses a part")]

use std::path::{Path, PathBuf};

use engine_svc::backend::cpu::CpuBackend;
use engine_svc::backend::options::{CpuOptions, Dtype, LinearKernels};
use engine_svc::backend::{Backend, Chunk};
use engine_svc::sample::Sampling;
use engine_svc::weights::{self, LoadFormat};

pub const OPTIONS: CpuOptions = CpuOptions {
    dtype: Dtype::F32,
    quantize: None,
    linear: LinearKernels::Auto,
    threads: 2,
    kv_blocks: 256,
    context_length: None,
};

/// `OPTIONS` with another type.
pub fn with(dtype: Dtype) -> CpuOptions {
    CpuOptions { dtype, ..OPTIONS }
}

pub fn load(path: &Path, options: &CpuOptions) -> CpuBackend {
    let source = weights::open(path.to_str().unwrap(), LoadFormat::Auto, 0).unwrap();
    CpuBackend::load(&*source, options).unwrap()
}

/// The real model: `FIRSTLIGHT_MODEL`, or where `make setup` puts it.
pub fn smollm2() -> PathBuf {
    let cache = || {
        let home = PathBuf::from(std::env::var_os("HOME").expect("HOME is set"));
        std::env::var_os("XDG_CACHE_HOME").map_or_else(|| home.join(".cache"), PathBuf::from)
    };
    let path = std::env::var_os("FIRSTLIGHT_MODEL")
        .map_or_else(|| cache().join("firstlight/models/SmolLM2-135M-Instruct.Q4_1.gguf"), PathBuf::from);
    assert!(path.exists(), "{} is missing: run `make setup`, or set FIRSTLIGHT_MODEL", path.display());
    path
}

/// A folder under tests/ at the root of the repository.
pub fn repository_tests(folder: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests").join(folder)
}

/// One sequence: its tokens so far and its block table.
#[derive(Clone)]
pub struct Sequence {
    pub tokens: Vec<u32>,
    pub prompt: usize,
    pub filled: usize,
    pub blocks: Vec<u32>,
    pub sampling: Sampling,
}

impl Sequence {
    /// A sequence that owns `blocks`.
    pub fn new(prompt: &[u32], blocks: impl IntoIterator<Item = u32>) -> Self {
        Self {
            tokens: prompt.to_vec(),
            prompt: prompt.len(),
            filled: 0,
            blocks: blocks.into_iter().collect(),
            sampling: Sampling::GREEDY,
        }
    }

    pub fn output(&self) -> &[u32] {
        &self.tokens[self.prompt..]
    }

    /// The next at most `limit` tokens that have no keys and values yet.
    pub fn chunk(&self, limit: usize) -> Chunk<'_> {
        let end = self.tokens.len().min(self.filled.saturating_add(limit));
        Chunk {
            tokens: &self.tokens[self.filled..end],
            start: self.filled,
            blocks: &self.blocks,
            sample: (end == self.tokens.len()).then_some(&self.sampling),
        }
    }

    /// What a forward brought for the chunk of the same limit.
    pub fn advance(&mut self, limit: usize, token: Option<u32>) {
        self.filled = self.tokens.len().min(self.filled.saturating_add(limit));
        self.tokens.extend(token);
    }
}

/// Runs all sequences together until each has `steps` tokens; prompts go in chunks of `limit`.
pub fn run(backend: &mut dyn Backend, sequences: &mut [Sequence], limit: usize, steps: usize) {
    loop {
        let mut open: Vec<&mut Sequence> =
            sequences.iter_mut().filter(|sequence| sequence.output().len() < steps).collect();
        if open.is_empty() {
            return;
        }
        let chunks: Vec<Chunk<'_>> = open.iter().map(|sequence| sequence.chunk(limit)).collect();
        let tokens = backend.forward(&chunks).unwrap();
        for (sequence, token) in open.iter_mut().zip(tokens) {
            sequence.advance(limit, token);
        }
    }
}

/// The continuation of one prompt alone.
pub fn alone(backend: &mut CpuBackend, prompt: &[u32], steps: usize) -> Vec<u32> {
    let mut sequence = [Sequence::new(prompt, 0..32)];
    run(backend, &mut sequence, usize::MAX, steps);
    sequence[0].output().to_vec()
}
