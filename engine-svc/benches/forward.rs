//! `cargo bench -p engine-svc --bench forward [-- MODEL [DTYPE [THREADS]]]`: whole forwards of a model.
//!
//! MODEL is a path, or a dummy's name (the default is `smollm2-135m`); DTYPE is auto, bf16, f32, int8 or int4. Times
//! are medians; on a shared machine compare within one run only.

use std::path::Path;
use std::time::Instant;

use anyhow::Context as _;
use clap::ValueEnum as _;
use engine_svc::backend::cpu::CpuBackend;
use engine_svc::backend::options::{CpuOptions, Dtype, LinearKernels, Quantize};
use engine_svc::backend::{Backend, Chunk};
use engine_svc::sample::Sampling;
use engine_svc::weights::{self, LoadFormat};

const BLOCK_TOKENS: usize = 16;
/// Enough for the largest case.
const KV_TOKENS: usize = 64 * 1024;
const RUNS: usize = 9;

/// Rows of one forward: sequences, tokens of each, positions that each has in the KV pool already.
const CASES: [(usize, usize, usize); 10] = [
    (1, 1, 127),
    (1, 1, 1023),
    (1, 1, 8191),
    (8, 1, 4095),
    (16, 1, 127),
    (64, 1, 63),
    (64, 1, 511),
    (1, 128, 0),
    (1, 512, 0),
    (1, 512, 7680),
];

fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args().skip(1).filter(|argument| argument != "--bench");
    let model = arguments.next().unwrap_or_else(|| "smollm2-135m".to_owned());
    let (dtype, quantize) = precision(&arguments.next().unwrap_or_else(|| "bf16".to_owned()))?;
    let threads = match arguments.next() {
        Some(threads) => threads.parse().context("THREADS")?,
        None => std::thread::available_parallelism()?.get(),
    };
    let format = if Path::new(&model).exists() { LoadFormat::Auto } else { LoadFormat::Dummy };
    let options = CpuOptions {
        dtype,
        quantize,
        linear: LinearKernels::Auto,
        threads,
        kv_blocks: KV_TOKENS / BLOCK_TOKENS,
        context_length: None,
    };
    let mut backend = CpuBackend::load(&*weights::open(&model, format, 0)?, &options)?;
    let info = backend.info();
    println!("{} {}, {}, {} threads", info.name, info.dtype, info.device, info.threads);
    write_all(&mut backend);
    for (sequences, tokens, before) in CASES {
        if before + tokens <= backend.info().context_length {
            let ms = 1e3 * median(&mut backend, sequences, tokens, before);
            let rate = (sequences * tokens) as f64 / ms * 1e3;
            println!("{sequences:3} × {tokens:3} tokens after {before:4}: {ms:8.2} ms, {rate:7.0} tokens/s");
        }
    }
    Ok(())
}

fn precision(name: &str) -> anyhow::Result<(Dtype, Option<Quantize>)> {
    match Quantize::from_str(name, true) {
        Ok(quantize) => Ok((Dtype::Bf16, Some(quantize))),
        Err(_) => Ok((Dtype::from_str(name, true).map_err(anyhow::Error::msg)?, None)),
    }
}

fn blocks_of(tokens: usize) -> u32 {
    tokens.div_ceil(BLOCK_TOKENS) as u32
}

fn some_tokens(backend: &CpuBackend, count: usize) -> Vec<u32> {
    let vocab = backend.info().vocab_size as u32;
    (0..count as u32).map(|i| i * 7919 % vocab).collect()
}

/// Writes every block that a case reads: pages that nobody has written are all read from one page of zeros, which stays
/// in the cache.
fn write_all(backend: &mut CpuBackend) {
    const PROMPT: usize = 512;
    let tokens = some_tokens(backend, PROMPT);
    let used = CASES.map(|(sequences, tokens, before)| sequences as u32 * blocks_of(before + tokens));
    let all: Vec<u32> = (0..used.into_iter().max().unwrap_or(0)).collect();
    for blocks in all.chunks(PROMPT / BLOCK_TOKENS) {
        let tokens = &tokens[..blocks.len() * BLOCK_TOKENS];
        let chunk = Chunk { tokens, start: 0, blocks, sample: Some(&Sampling::GREEDY) };
        backend.forward(&[chunk]).expect("the chunk keeps the rules");
    }
}

/// Median seconds of a forward, after one to warm up.
#[expect(clippy::disallowed_methods, reason = "a stopwatch for forwards, not a stamp of a request")]
fn median(backend: &mut CpuBackend, sequences: usize, tokens: usize, before: usize) -> f64 {
    let tokens = some_tokens(backend, tokens);
    let blocks = blocks_of(before + tokens.len());
    let tables: Vec<Vec<u32>> =
        (0..sequences as u32).map(|s| (0..blocks).map(|b| b * sequences as u32 + s).collect()).collect();
    let chunks: Vec<Chunk<'_>> = tables
        .iter()
        .map(|blocks| Chunk { tokens: &tokens, start: before, blocks, sample: Some(&Sampling::GREEDY) })
        .collect();
    let mut seconds: Vec<f64> = (0..=RUNS)
        .map(|_| {
            let start = Instant::now();
            backend.forward(&chunks).expect("the chunks keep the rules");
            start.elapsed().as_secs_f64()
        })
        .skip(1)
        .collect();
    seconds.sort_by(f64::total_cmp);
    seconds[RUNS / 2]
}
