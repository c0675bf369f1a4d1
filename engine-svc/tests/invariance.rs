//! A sequence's tokens depend on the sequence alone: not on its neighbours, its chunks, its blocks or its past.
//!
//! Sampled at temperature 1, so that the smallest change of a logit shows sooner or later; logits are compared
//! bit by bit.

mod common;

use std::path::PathBuf;

use common::{OPTIONS, Sequence, load, repository_tests, run, smollm2, with};
use engine_svc::backend::Backend;
use engine_svc::backend::cpu::CpuBackend;
use engine_svc::backend::options::{CpuOptions, Dtype, LinearKernels, Quantize};
use engine_svc::sample::Sampling;

const STEPS: usize = 12;

/// The models and formats that promise this.
fn cases() -> Vec<(PathBuf, CpuOptions)> {
    let int8 = CpuOptions { quantize: Some(Quantize::Int8), ..OPTIONS };
    let torch = |dtype| CpuOptions { linear: LinearKernels::Torch, ..with(dtype) };
    let mut cases = Vec::new();
    for model in ["golden/tiny-llama", "golden/tiny-gpt2"] {
        for options in [OPTIONS, with(Dtype::Bf16), int8, torch(Dtype::F32), torch(Dtype::Bf16)] {
            cases.push((repository_tests(model), options));
        }
    }
    cases.extend([Dtype::Bf16, Dtype::Auto].map(|dtype| (smollm2(), with(dtype))));
    cases
}

fn for_each_case(check: impl Fn(&mut CpuBackend)) {
    for (path, options) in cases() {
        println!("{} {options:?}", path.display());
        check(&mut load(&path, &options));
    }
}

/// A prompt of awkward length, different for each `index`.
fn prompt(backend: &CpuBackend, index: usize) -> Vec<u32> {
    let len = [1, 2, 5, 16, 17, 33, 70][index % 7];
    let vocab = backend.info().vocab_size;
    (0..len).map(|i| ((1 + i * 7919 + index * 104_729) % vocab) as u32).collect()
}

fn sequence(backend: &CpuBackend, index: usize, blocks: impl IntoIterator<Item = u32>) -> Sequence {
    let sampling = Sampling::new(1.0, 0, 1.0, 0.0, index as u64).unwrap();
    Sequence { sampling, ..Sequence::new(&prompt(backend, index), blocks) }
}

/// What sequence `index` says alone, its prompt in one chunk.
fn alone(backend: &mut CpuBackend, index: usize) -> Vec<u32> {
    let mut alone = [sequence(backend, index, 0..8)];
    run(backend, &mut alone, usize::MAX, STEPS);
    alone[0].output().to_vec()
}

/// The logits after the last token of a prompt that went in chunks of `limit`.
fn last_logits(backend: &mut CpuBackend, index: usize, limit: usize, blocks: &[u32]) -> Vec<u32> {
    let mut sequence = sequence(backend, index, blocks.iter().copied());
    let mut logits = Vec::new();
    while sequence.filled < sequence.prompt {
        logits = backend.logits(sequence.chunk(limit)).unwrap();
        sequence.advance(limit, None);
    }
    let vocab = backend.info().vocab_size;
    logits[logits.len() - vocab..].iter().map(|logit| logit.to_bits()).collect()
}

#[test]
fn neighbours_do_not_change_what_a_sequence_says() {
    for_each_case(|backend| {
        for limit in [usize::MAX, 7] {
            let mut together: Vec<Sequence> =
                (0..14).map(|i| sequence(backend, i, 8 * i as u32..8 * (i as u32 + 1))).collect();
            run(backend, &mut together, limit, STEPS);
            for (index, sequence) in together.iter().enumerate() {
                assert_eq!(sequence.output(), alone(backend, index), "sequence {index}");
            }
        }
    });
}

#[test]
fn chunks_and_blocks_do_not_change_a_bit_of_the_logits() {
    let scattered = [41, 3, 99, 17, 5, 200, 64, 8];
    for_each_case(|backend| {
        for index in 0..7 {
            let whole = last_logits(backend, index, usize::MAX, &[0, 1, 2, 3, 4, 5, 6, 7]);
            for limit in [1, 3, 16, 31] {
                assert_eq!(last_logits(backend, index, limit, &scattered), whole, "chunks of {limit}");
            }
        }
    });
}

#[test]
fn recomputation_after_preemption_goes_on_with_the_same_tokens() {
    for_each_case(|backend| {
        let whole = alone(backend, 5);
        for cut in [1, 4, STEPS - 1] {
            let mut before = [sequence(backend, 5, 0..8)];
            run(backend, &mut before, usize::MAX, cut);
            // Its blocks are lost, its tokens are not.
            let mut after = [Sequence { filled: 0, blocks: (100..108).collect(), ..before[0].clone() }];
            run(backend, &mut after, 32, STEPS);
            assert_eq!(after[0].output(), whole, "preempted after {cut} tokens");
        }
    });
}

#[test]
fn a_copied_block_is_as_good_as_the_original() {
    for_each_case(|backend| {
        let whole = alone(backend, 5);
        let mut first = [sequence(backend, 5, 0..8)];
        run(backend, &mut first, usize::MAX, 1);
        // 33 tokens fill two blocks, which are shared; the third is copied and written on.
        backend.copy_block(2, 50);
        let mut second = [Sequence { blocks: vec![0, 1, 50, 51, 52], ..first[0].clone() }];
        run(backend, &mut second, usize::MAX, STEPS);
        run(backend, &mut first, usize::MAX, STEPS);
        assert_eq!(second[0].output(), whole);
        assert_eq!(first[0].output(), whole);
    });
}
