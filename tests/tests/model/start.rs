//! Files that are no model are refused at the start, with their path and the reason.

use std::fs;

use firstlight_tests::{
    assets,
    service::{free_address, refused},
};

#[tokio::test]
async fn a_truncated_model_is_refused_with_its_path_and_the_reason() {
    let whole = fs::read(assets::tiny_llama()).unwrap();
    for (name, length) in [("half.gguf", whole.len() / 2), ("header.gguf", 40), ("empty.gguf", 0)] {
        engine_refuses(name, &whole[..length]).await;
    }
}

#[tokio::test]
async fn absurd_sizes_in_a_header_are_refused() {
    let mut absurd = fs::read(assets::tiny_llama()).unwrap();
    // Bytes 8 to 16 of a GGUF file are its number of tensors.
    absurd[8..16].copy_from_slice(&u64::MAX.to_le_bytes());
    engine_refuses("absurd.gguf", &absurd).await;

    let header = u64::MAX.to_le_bytes();
    engine_refuses_folder("absurd", &header).await;
}

#[tokio::test]
async fn a_scheduler_refuses_a_vocabulary_that_is_none() {
    let path = folder("vocabulary").join("tokenizer.json");
    fs::write(&path, "{\"model\": 5}").unwrap();
    let said =
        refused("scheduler-svc", &["--engine", "127.0.0.1:1", "--model", path.to_str().unwrap()]).await;
    assert!(said.contains(path.to_str().unwrap()), "{said}");
}

async fn engine_refuses(name: &str, bytes: &[u8]) {
    let path = folder(name).join(name);
    fs::write(&path, bytes).unwrap();
    engine_refuses_path(path.to_str().unwrap()).await;
}

/// A Hugging Face folder with the tiny Llama's configuration and these bytes for weights.
async fn engine_refuses_folder(name: &str, safetensors: &[u8]) {
    let folder = folder(name);
    let config = concat!(env!("CARGO_MANIFEST_DIR"), "/golden/tiny-llama/config.json");
    fs::copy(config, folder.join("config.json")).unwrap();
    fs::write(folder.join("model.safetensors"), safetensors).unwrap();
    engine_refuses_path(folder.to_str().unwrap()).await;
}

async fn engine_refuses_path(path: &str) {
    let (listen, metrics) = (free_address(), free_address());
    let args = ["--model", path, "--listen", &listen, "--metrics-listen", &metrics];
    let said = refused("engine-svc", &args).await;
    assert!(said.contains(path), "{said}");
}

fn folder(name: &str) -> std::path::PathBuf {
    let folder = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    fs::create_dir_all(&folder).unwrap();
    folder
}
