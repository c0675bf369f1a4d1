//! Logits and greedy tokens against those that Hugging Face transformers gives (tests/golden).

mod common;

use std::fs;
use std::path::Path;

use common::{OPTIONS, Sequence, alone, load, repository_tests, run, smollm2, with};
use engine_svc::backend::cpu::CpuBackend;
use engine_svc::backend::options::{CpuOptions, Dtype, LinearKernels};
use serde::Deserialize;

/// Largest difference allowed, as a part of the largest logit of the row.
const TOLERANCE: f32 = 1e-3;

#[derive(Deserialize)]
struct Golden {
    vocab: usize,
    continuations: Vec<Continuation>,
    logits: Vec<Row>,
}

#[derive(Deserialize)]
struct Continuation {
    prompt: Vec<u32>,
    tokens: Vec<u32>,
    margins: Vec<f32>,
    max_abs: Vec<f32>,
}

#[derive(Deserialize)]
struct Row {
    continuation: usize,
    position: usize,
    #[serde(default)]
    ids: Vec<usize>,
    #[serde(default)]
    values: Vec<f32>,
}

impl Row {
    fn check(&self, logits: &[f32]) {
        let largest = logits.iter().fold(0.0_f32, |a, b| a.max(b.abs()));
        for (&id, &want) in self.ids.iter().zip(&self.values) {
            assert!(
                (logits[id] - want).abs() <= TOLERANCE * largest,
                "continuation {}, position {}, token {id}: {} instead of {want}",
                self.continuation,
                self.position,
                logits[id],
            );
        }
    }
}

impl Golden {
    fn read(folder: &Path) -> Self {
        let golden: Self = serde_json::from_slice(&fs::read(folder.join("golden.json")).unwrap()).unwrap();
        assert_eq!(golden.continuations.len(), 20);
        golden
    }

    /// Fills in whole rows from `logits.f32`.
    fn with_whole_rows(mut self, folder: &Path) -> Self {
        let bytes = fs::read(folder.join("logits.f32")).unwrap();
        let values: Vec<f32> = bytes.as_chunks().0.iter().map(|b| f32::from_le_bytes(*b)).collect();
        assert_eq!(values.len(), self.logits.len() * self.vocab);
        for (row, values) in self.logits.iter_mut().zip(values.chunks_exact(self.vocab)) {
            (row.ids, row.values) = ((0..self.vocab).collect(), values.to_vec());
        }
        self
    }

    /// Prefill, then decode steps: every recorded row within the tolerance.
    fn check_logits(&self, backend: &mut CpuBackend) {
        for (index, of) in self.continuations.iter().enumerate() {
            let recorded: Vec<&Row> = self.logits.iter().filter(|row| row.continuation == index).collect();
            let Some(last) = recorded.iter().map(|row| row.position).max() else { continue };
            let tokens = [&of.prompt[..], &of.tokens].concat();
            let mut sequence = Sequence::new(&tokens[..=last], 0..32);
            let mut logits = backend.logits(sequence.chunk(of.prompt.len())).unwrap();
            sequence.advance(of.prompt.len(), None);
            while sequence.filled <= last {
                logits.extend(backend.logits(sequence.chunk(1)).unwrap());
                sequence.advance(1, None);
            }
            for row in recorded {
                row.check(&logits[row.position * self.vocab..][..self.vocab]);
            }
        }
    }

    /// Greedy continuations: equal wherever the margin exceeds the error, and nearly everywhere.
    fn check_tokens(&self, backend: &mut CpuBackend, tolerance: f32) {
        let steps = self.continuations[0].tokens.len();
        let mut sequences: Vec<Sequence> = (0..)
            .zip(&self.continuations)
            .map(|(index, of)| Sequence::new(&of.prompt, 12 * index..12 * (index + 1)))
            .collect();
        run(backend, &mut sequences, usize::MAX, steps);
        let (mut equal, mut total) = (0, 0);
        for (of, sequence) in self.continuations.iter().zip(&sequences) {
            let tokens = sequence.output();
            total += tokens.len();
            let first_difference = tokens.iter().zip(&of.tokens).position(|(a, b)| a != b);
            equal += first_difference.unwrap_or(tokens.len());
            if let Some(at) = first_difference {
                assert!(
                    of.margins[at] <= 2.0 * tolerance * of.max_abs[at],
                    "token {at} after {:?} is {} instead of {}",
                    of.prompt,
                    tokens[at],
                    of.tokens[at],
                );
            }
        }
        assert!(10 * equal >= 9 * total, "{equal} of {total} tokens are equal");
    }
}

fn check_tiny(name: &str, options: &CpuOptions) {
    let folder = repository_tests("golden").join(name);
    let golden = Golden::read(&folder).with_whole_rows(&folder);
    let mut backend = load(&folder, options);
    golden.check_logits(&mut backend);
    golden.check_tokens(&mut backend, TOLERANCE);
}

#[test]
fn tiny_gpt2_answers_as_transformers_does() {
    check_tiny("tiny-gpt2", &OPTIONS);
}

#[test]
fn tiny_llama_answers_as_transformers_does() {
    check_tiny("tiny-llama", &OPTIONS);
}

#[test]
fn tiny_qwen2_answers_as_transformers_does() {
    check_tiny("tiny-qwen2", &OPTIONS);
}

#[test]
fn tiny_qwen3_answers_as_transformers_does() {
    check_tiny("tiny-qwen3", &OPTIONS);
}

#[test]
fn linears_by_libtorch_answer_as_transformers_does() {
    let options = CpuOptions { linear: LinearKernels::Torch, ..OPTIONS };
    for name in ["tiny-gpt2", "tiny-llama"] {
        check_tiny(name, &options);
    }
}

#[test]
fn a_gguf_file_with_permuted_rows_answers_as_the_folder_it_was_made_from() {
    let folder = repository_tests("golden/tiny-llama");
    let golden = Golden::read(&folder).with_whole_rows(&folder);
    let mut backend = load(&repository_tests("fixtures/gguf/tiny-llama.gguf"), &OPTIONS);
    golden.check_logits(&mut backend);
    golden.check_tokens(&mut backend, TOLERANCE);
}

#[test]
fn smollm2_answers_as_transformers_does() {
    let golden = Golden::read(&repository_tests("golden/smollm2"));
    let mut backend = load(&smollm2(), &OPTIONS);
    golden.check_logits(&mut backend);
    golden.check_tokens(&mut backend, TOLERANCE);
}

#[test]
fn smollm2_in_bf16_says_that_the_capital_of_france_is_paris() {
    let golden = Golden::read(&repository_tests("golden/smollm2"));
    let france = &golden.continuations[0];
    let mut backend = load(&smollm2(), &with(Dtype::Bf16));
    assert_eq!(alone(&mut backend, &france.prompt, 2), france.tokens[..2], "` Paris`, `.`");
}
