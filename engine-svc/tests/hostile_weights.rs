//! A model that lies is refused with its path and the reason: no panic, no memory that its bytes do not back.

mod common;

use std::fs;
use std::path::{Path, PathBuf};

use common::{OPTIONS, repository_tests};
use engine_svc::backend::cpu::CpuBackend;
use engine_svc::weights::{self, LoadError, LoadFormat};
use proptest::prelude::*;
use serde_json::{Value, json};

/// A copy of tiny-llama's folder that is deleted when dropped.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("firstlight-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir(&path).unwrap();
        for file in ["config.json", "model.safetensors", "tokenizer.json"] {
            fs::copy(repository_tests("golden/tiny-llama").join(file), path.join(file)).unwrap();
        }
        Self(path)
    }

    fn write(&self, file: &str, bytes: impl AsRef<[u8]>) {
        fs::write(self.0.join(file), bytes).unwrap();
    }

    fn set(&self, field: &str, value: Value) {
        let path = self.0.join("config.json");
        let mut config: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        config[field] = value;
        fs::write(path, config.to_string()).unwrap();
    }

    /// Why it is refused, having named this folder.
    fn refusal(&self) -> String {
        let text = load(&self.0).err().expect("is refused").to_string();
        assert!(text.contains(&*self.0.to_string_lossy()), "{text} does not name the path");
        text
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn load(path: &Path) -> Result<CpuBackend, LoadError> {
    let source = weights::open(path.to_str().unwrap(), LoadFormat::Auto, 0)?;
    CpuBackend::load(&*source, &OPTIONS)
}

#[test]
fn a_truncated_safetensors_file_is_refused() {
    let folder = Folder::new("truncated");
    let bytes = fs::read(folder.0.join("model.safetensors")).unwrap();
    for len in [0, 1, 7, 8, 9, 100, bytes.len() / 2, bytes.len() - 1] {
        folder.write("model.safetensors", &bytes[..len]);
        assert!(folder.refusal().contains("not a sound safetensors file"), "{len} bytes");
    }
}

#[test]
fn an_absurd_safetensors_header_is_refused() {
    let folder = Folder::new("header");
    let bytes = fs::read(folder.0.join("model.safetensors")).unwrap();
    for len in [0, u64::MAX, u64::MAX / 2, 1 << 40, bytes.len() as u64] {
        folder.write("model.safetensors", [&len.to_le_bytes(), &bytes[8..]].concat());
        assert!(folder.refusal().contains("not a sound safetensors file"), "header of {len} bytes");
    }
}

#[test]
fn a_configuration_that_makes_no_sense_is_refused() {
    let numbers = [
        ("num_hidden_layers", "layers"),
        ("hidden_size", "hidden"),
        ("num_attention_heads", "heads"),
        ("num_key_value_heads", "key/value heads"),
        ("head_dim", "head dimension"),
        ("intermediate_size", "feed-forward width"),
        ("vocab_size", "vocabulary size"),
        ("max_position_embeddings", "context length"),
    ];
    for (field, named) in numbers {
        for value in [json!(0), json!(u64::MAX), json!(1_u64 << 40)] {
            let folder = Folder::new("config");
            folder.set(field, value);
            let text = folder.refusal();
            assert!(text.contains(named), "{field}: {text}");
        }
        let folder = Folder::new("config");
        folder.set(field, json!(-1));
        assert!(folder.refusal().contains("config.json"));
    }
    for (field, value, want) in [
        ("num_key_value_heads", json!(3), "no divisor"),
        ("eos_token_id", json!([0, 272]), "outside the vocabulary"),
        ("hidden_act", json!("relu"), "activation relu is not supported"),
        ("model_type", json!("bert"), "model type bert"),
        ("rope_scaling", json!({"rope_type": "yarn"}), "rotary scaling yarn"),
        ("use_sliding_window", json!(true), "sliding-window"),
    ] {
        let folder = Folder::new("config");
        folder.set(field, value);
        let text = folder.refusal();
        assert!(text.contains(want), "{field}: {text}");
    }
}

#[test]
fn weights_that_do_not_fit_the_configuration_are_named() {
    for (field, value, want) in [
        ("hidden_size", json!(128), "TokenEmbedding has the shape [272, 64]"),
        ("num_hidden_layers", json!(1 << 20), "AttentionNorm of layer 2"),
        ("intermediate_size", json!(128), "Gate of layer 0 has the shape [96, 64]"),
        ("vocab_size", json!(300), "TokenEmbedding has the shape"),
    ] {
        let folder = Folder::new("shape");
        folder.set(field, value);
        let text = folder.refusal();
        assert!(text.contains(want), "{field}: {text}");
    }
}

#[test]
fn files_that_are_absent_or_not_json_are_named() {
    let folder = Folder::new("absent");
    fs::remove_file(folder.0.join("model.safetensors")).unwrap();
    assert!(folder.refusal().contains("model.safetensors: cannot be read"));
    folder.write("config.json", "{");
    assert!(folder.refusal().contains("config.json"));
    let text = load(Path::new("/no/such/model")).err().unwrap().to_string();
    assert!(text.contains("/no/such/model: no such file or folder"));
    let text = weights::open("gpt5", LoadFormat::Dummy, 0).err().unwrap().to_string();
    assert!(text.contains("gpt2, smollm2-135m"), "{text}");
}

#[test]
fn a_shard_outside_the_folder_is_refused() {
    let folder = Folder::new("shards");
    let index = json!({"weight_map": {"lm_head.weight": "../model.safetensors"}});
    folder.write("model.safetensors.index.json", index.to_string());
    assert!(folder.refusal().contains("not a file of this folder"));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever bytes of a GGUF file change, it is refused or it loads.
    #[test]
    fn a_mutated_gguf_file_is_refused_or_loads(
        changes in prop::collection::vec((0_usize..4096, any::<u8>()), 1..4),
        wide in prop::option::of((0_usize..4096, any::<u64>())),
    ) {
        let mut bytes = fs::read(repository_tests("fixtures/gguf/tiny-llama.gguf")).unwrap();
        for (at, byte) in changes {
            bytes[at] = byte;
        }
        if let Some((at, number)) = wide {
            bytes[at..at + 8].copy_from_slice(&number.to_le_bytes());
        }
        let path = std::env::temp_dir().join(format!("firstlight-mutated-{}.gguf", std::process::id()));
        fs::write(&path, bytes).unwrap();
        if let Err(error) = load(&path) {
            prop_assert!(error.to_string().contains("firstlight-mutated"), "{error}");
        }
        fs::remove_file(&path).unwrap();
    }
}
