//! What holding weights smaller costs, against f32 on a public-domain text (tests/golden/perplexity). Judged by the
//! Kullback-Leibler divergence of what is predicted: a thousand tokens of text tell their perplexity to half a per
//! cent only, which is what int8 costs or not as roundings fall, and so differs from one instruction set to the next.

mod common;

use std::fs;

use common::{OPTIONS, load, repository_tests, smollm2, with};
use engine_svc::backend::Chunk;
use engine_svc::backend::options::{CpuOptions, Dtype, Quantize};

/// Tokens per chunk: keeps the logits of all rows within 50 MB.
const CHUNK: usize = 256;

/// What is predicted after each token of the text but the last.
#[derive(Default)]
struct Predictions {
    /// Log-probabilities of all tokens, nats.
    logs: Vec<Vec<f32>>,
    /// The tokens that do follow.
    next: Vec<usize>,
}

impl Predictions {
    fn of(options: &CpuOptions) -> Self {
        let ids = fs::read(repository_tests("golden/perplexity/ids.json")).unwrap();
        let ids: Vec<u32> = serde_json::from_slice(&ids).unwrap();
        let blocks: Vec<u32> = (0..128).collect();
        let mut backend = load(&smollm2(), options);
        let mut all = Self::default();
        for start in (0..ids.len() - 1).step_by(CHUNK) {
            let tokens = &ids[start..(start + CHUNK).min(ids.len() - 1)];
            let logits = backend.logits(Chunk { tokens, start, blocks: &blocks, sample: None }).unwrap();
            all.logs.extend(logits.chunks_exact(logits.len() / tokens.len()).map(log_probabilities));
        }
        all.next = ids[1..].iter().map(|&id| id as usize).collect();
        all
    }

    /// Nats that the text takes, token by token.
    fn nats(&self) -> impl Iterator<Item = f64> {
        self.logs.iter().zip(&self.next).map(|(logs, &next)| -f64::from(logs[next]))
    }

    fn perplexity(&self) -> f64 {
        mean(self.nats()).exp()
    }

    /// How much longer than `self`'s the perplexity of `other` is, and the standard error of that: shares.
    fn worse(&self, other: &Self) -> (f64, f64) {
        let differences: Vec<f64> = other.nats().zip(self.nats()).map(|(other, own)| other - own).collect();
        let more = mean(differences.iter().copied());
        let variance = mean(differences.iter().map(|difference| (difference - more).powi(2)));
        (more.exp_m1(), (variance / differences.len() as f64).sqrt())
    }

    /// Mean Kullback-Leibler divergence of `other` from `self`, nats: what `other` costs a text that `self` predicts.
    fn divergence(&self, other: &Self) -> f64 {
        mean(self.logs.iter().zip(&other.logs).map(|(own, other)| {
            let terms = own.iter().zip(other).map(|(p, q)| f64::from(p.exp()) * f64::from(p - q));
            terms.sum::<f64>()
        }))
    }

    /// Share of positions at which both hold the same token for the likeliest.
    fn agreement(&self, other: &Self) -> f64 {
        mean(
            self.logs.iter().zip(&other.logs).map(|(a, b)| f64::from(u8::from(likeliest(a) == likeliest(b)))),
        )
    }
}

fn log_probabilities(logits: &[f32]) -> Vec<f32> {
    let top = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let sum: f64 = logits.iter().map(|logit| f64::from(logit - top).exp()).sum();
    let sum = top + sum.ln() as f32;
    logits.iter().map(|logit| logit - sum).collect()
}

fn likeliest(logs: &[f32]) -> Option<usize> {
    logs.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1)).map(|(token, _)| token)
}

fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let (count, sum) = values.fold((0, 0.0), |(count, sum), value| (count + 1, sum + value));
    sum / f64::from(count)
}

#[test]
fn smaller_weights_cost_little_quality() {
    let exact = Predictions::of(&OPTIONS);
    let quantized = |quantize| CpuOptions { quantize: Some(quantize), ..with(Dtype::Bf16) };
    println!("f32: perplexity {:.4}", exact.perplexity());
    for (name, options, most_divergence, least_agreement) in [
        ("bf16", with(Dtype::Bf16), 0.003, 0.97),
        ("the file's own blocks", with(Dtype::Auto), 0.01, 0.93),
        ("int8", quantized(Quantize::Int8), 0.01, 0.93),
        // The file's layers are of 4 bits already: what is lost is lost with the activations.
        ("int4", quantized(Quantize::Int4), 0.01, 0.93),
    ] {
        let smaller = Predictions::of(&options);
        let (worse, error) = exact.worse(&smaller);
        let (divergence, agreement) = (exact.divergence(&smaller), exact.agreement(&smaller));
        let perplexity = smaller.perplexity();
        println!(
            "{name}: divergence {divergence:.5}, greedy agreement {agreement:.3}, \
             perplexity {perplexity:.4} ({:+.2} ± {:.2} %)",
            100.0 * worse,
            100.0 * error,
        );
        assert!(divergence <= most_divergence, "{name}: divergence {divergence}");
        assert!(agreement >= least_agreement, "{name}: {agreement} of greedy tokens agree");
    }
}
