//! Whichever way weights come, the model asks for them by the same names and gets the same values.

mod common;

use std::collections::HashMap;
use std::fs;

use common::{OPTIONS, Sequence, alone, load, repository_tests, run};
use engine_svc::backend::cpu::CpuBackend;
use engine_svc::backend::options::{CpuOptions, Dtype};
use engine_svc::backend::{Backend, Chunk};
use engine_svc::weights::{self, LayerWeight, LoadFormat, Weight};
use safetensors::SafeTensors;
use safetensors::tensor::TensorView;

const PROMPT: [u32; 6] = [3, 1, 4, 1, 5, 9];

#[test]
fn shards_hold_what_one_file_holds() {
    let whole = repository_tests("golden/tiny-llama");
    let folder = std::env::temp_dir().join(format!("firstlight-shards-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    fs::copy(whole.join("config.json"), folder.join("config.json")).unwrap();
    let bytes = fs::read(whole.join("model.safetensors")).unwrap();
    let tensors = SafeTensors::deserialize(&bytes).unwrap();
    let mut weight_map = HashMap::new();
    for shard in 0..2 {
        let name = format!("model-{shard}.safetensors");
        let part: Vec<(String, TensorView<'_>)> = tensors
            .tensors()
            .into_iter()
            .enumerate()
            .filter(|(i, _)| i % 2 == shard)
            .map(|(_, t)| t)
            .collect();
        weight_map.extend(part.iter().map(|(tensor, _)| (tensor.clone(), name.clone())));
        fs::write(folder.join(&name), safetensors::serialize(part, None).unwrap()).unwrap();
    }
    let index = serde_json::json!({ "weight_map": weight_map });
    fs::write(folder.join("model.safetensors.index.json"), index.to_string()).unwrap();

    let want = alone(&mut load(&whole, &OPTIONS), &PROMPT, 16);
    assert_eq!(alone(&mut load(&folder, &OPTIONS), &PROMPT, 16), want);
    fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn a_folder_and_its_gguf_file_bring_the_same_vocabulary() {
    let folder = load(&repository_tests("golden/tiny-llama"), &OPTIONS);
    let file = load(&repository_tests("fixtures/gguf/tiny-llama.gguf"), &OPTIONS);
    assert!(!folder.info().tokenizer_hash.is_empty());
    assert_eq!(folder.info().tokenizer_hash, file.info().tokenizer_hash);
    assert_eq!(folder.info().eos_ids, file.info().eos_ids);
}

fn dummy(name: &str, seed: u64) -> CpuBackend {
    let source = weights::open(name, LoadFormat::Dummy, seed).unwrap();
    let options = CpuOptions { dtype: Dtype::Bf16, ..OPTIONS };
    CpuBackend::load(&*source, &options).unwrap()
}

#[test]
fn a_dummy_is_the_same_for_the_same_seed_only() {
    let first = alone(&mut dummy("gpt2", 1), &PROMPT, 4);
    assert_eq!(alone(&mut dummy("gpt2", 1), &PROMPT, 4), first);
    assert_ne!(alone(&mut dummy("gpt2", 2), &PROMPT, 4), first);
}

#[test]
fn dummy_values_have_the_spread_they_should() {
    let source = weights::open("smollm2-135m", LoadFormat::Dummy, 7).unwrap();
    let matrix = source.matrix(Weight::Layer(3, LayerWeight::Up)).unwrap();
    assert_eq!((matrix.outputs, matrix.inputs), (1536, 576));
    let mut values = vec![0.0; 576 * 1536];
    for (index, row) in values.chunks_exact_mut(576).enumerate() {
        matrix.read(index, row);
    }
    let n = values.len() as f64;
    let mean = values.iter().map(|v| f64::from(*v)).sum::<f64>() / n;
    let spread = (values.iter().map(|v| f64::from(*v).powi(2)).sum::<f64>() / n).sqrt();
    assert!(mean.abs() < 1e-4 && (spread - 0.02).abs() < 1e-4, "mean {mean}, spread {spread}");
}

#[test]
fn the_backend_says_what_it_loaded() {
    let smollm = dummy("smollm2-135m", 0);
    let info = smollm.info();
    assert_eq!((info.vocab_size, info.context_length, info.dtype.as_str()), (49152, 8192, "bf16"));
    assert!((268e6..280e6).contains(&(info.weight_bytes as f64)), "{}", info.weight_bytes);
    let kv = smollm.kv();
    assert_eq!((kv.block_tokens, kv.blocks, kv.block_bytes), (16, 256, 2 * 30 * 3 * 64 * 2 * 16));
}

#[test]
fn a_chunk_that_breaks_a_rule_is_refused_and_writes_nothing() {
    let mut backend = load(&repository_tests("golden/tiny-llama"), &OPTIONS);
    let want = alone(&mut backend, &PROMPT, 8);
    let mut sequence = [Sequence::new(&PROMPT, 0..32)];
    run(&mut backend, &mut sequence, usize::MAX, 4);
    let good = Chunk { tokens: &[1, 2], start: 0, blocks: &[0], sample: None };
    let bad = Chunk { tokens: &[999], start: 0, blocks: &[1], sample: None };
    let error = backend.forward(&[good, bad]).unwrap_err().to_string();
    assert_eq!(error, "chunk 1: token id 999 is outside the vocabulary of 272");
    run(&mut backend, &mut sequence, usize::MAX, 8);
    assert_eq!(sequence[0].output(), want);
}
