//! What holding weights smaller costs: perplexity of a public-domain text, and how often the greedy token changes,
//! against f32 (tests/golden/perplexity).

mod common;

use std::fs;

use common::{OPTIONS, load, repository_tests, smollm2, with};
use engine_svc::backend::Chunk;
use engine_svc::backend::options::{CpuOptions, Dtype, Quantize};

/// Tokens per chunk: keeps the logits of all rows within 50 MB.
const CHUNK: usize = 256;

struct Quality {
    perplexity: f64,
    greedy: Vec<usize>,
}

fn measure(options: &CpuOptions) -> Quality {
    let ids = fs::read(repository_tests("golden/perplexity/ids.json")).unwrap();
    let ids: Vec<u32> = serde_json::from_slice(&ids).unwrap();
    let blocks: Vec<u32> = (0..128).collect();
    let mut backend = load(&smollm2(), options);
    let (mut nats, mut greedy) = (0.0, Vec::new());
    for start in (0..ids.len() - 1).step_by(CHUNK) {
        let tokens = &ids[start..(start + CHUNK).min(ids.len() - 1)];
        let logits = backend.logits(Chunk { tokens, start, blocks: &blocks, sample: None }).unwrap();
        for (row, &next) in logits.chunks_exact(logits.len() / tokens.len()).zip(&ids[start + 1..]) {
            let top = row.iter().copied().enumerate().max_by(|a, b| a.1.total_cmp(&b.1)).unwrap();
            let sum: f64 = row.iter().map(|logit| f64::from(logit - top.1).exp()).sum();
            nats += sum.ln() - f64::from(row[next as usize] - top.1);
            greedy.push(top.0);
        }
    }
    Quality { perplexity: (nats / greedy.len() as f64).exp(), greedy }
}

#[test]
fn smaller_weights_cost_little_quality() {
    let exact = measure(&OPTIONS);
    let quantized = |quantize| CpuOptions { quantize: Some(quantize), ..with(Dtype::Bf16) };
    println!("f32: perplexity {:.4}", exact.perplexity);
    for (name, options, most_worse, least_agreement) in [
        ("bf16", with(Dtype::Bf16), 0.005, 0.97),
        ("the file's own blocks", with(Dtype::Auto), 0.01, 0.93),
        ("int8", quantized(Quantize::Int8), 0.01, 0.90),
        ("int4", quantized(Quantize::Int4), 0.25, 0.70),
    ] {
        let quality = measure(&options);
        let worse = quality.perplexity / exact.perplexity - 1.0;
        let equal = quality.greedy.iter().zip(&exact.greedy).filter(|(a, b)| a == b).count();
        let agreement = equal as f64 / exact.greedy.len() as f64;
        println!(
            "{name}: perplexity {:.4} ({worse:+.3}), greedy agreement {agreement:.3}",
            quality.perplexity
        );
        assert!(worse <= most_worse, "{name}: perplexity {worse:+.4} of f32's");
        assert!(agreement >= least_agreement, "{name}: {agreement} of greedy tokens agree");
    }
}
