//! Token ids of awkward text equal those of the model's own authors' tools (tests/golden/tokens), and
//! streaming them back gives the text.

use std::path::{Path, PathBuf};

use scheduler_svc::text::{Detokenizer, Tokenizer};

fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path)
}

fn golden(name: &str) -> Vec<(String, Vec<u32>)> {
    let text = std::fs::read(repository("tests/golden/tokens").join(name)).unwrap();
    let golden: serde_json::Value = serde_json::from_slice(&text).unwrap();
    let ids =
        |v: &serde_json::Value| v.as_array().unwrap().iter().map(|id| id.as_u64().unwrap() as u32).collect();
    let texts = golden["texts"].as_array().unwrap();
    texts.iter().map(|t| (t["text"].as_str().unwrap().to_owned(), ids(&t["ids"]))).collect()
}

/// `$FIRSTLIGHT_MODEL`, or where `make setup` puts it.
fn smollm2() -> PathBuf {
    let cache = || PathBuf::from(std::env::var_os("HOME").unwrap()).join(".cache/firstlight/models");
    let given = std::env::var_os("FIRSTLIGHT_MODEL").map(PathBuf::from);
    let path = given.unwrap_or_else(|| cache().join("SmolLM2-135M-Instruct.Q4_1.gguf"));
    assert!(path.is_file(), "{} is not there; `make setup` fetches it", path.display());
    path
}

fn compare(tokenizer: &Tokenizer, golden: &[(String, Vec<u32>)]) {
    assert!(golden.len() > 40, "only {} texts", golden.len());
    for (text, ids) in golden {
        assert_eq!(&tokenizer.encode(text).unwrap(), ids, "{text:?}");
    }
}

/// Text of a stream of tokens.
fn streamed(tokenizer: &Tokenizer, ids: &[u32]) -> String {
    let mut detokenizer = Detokenizer::new(tokenizer.pieces().clone());
    let mut text = String::new();
    ids.iter().for_each(|id| detokenizer.push(*id, &mut text));
    detokenizer.finish(&mut text);
    text
}

#[test]
fn smollm2_ids_equal_llama_cpps() {
    let tokenizer = Tokenizer::load(&smollm2()).unwrap();
    assert_eq!(tokenizer.vocab_size(), 49152);
    compare(&tokenizer, &golden("smollm2.json"));
}

#[test]
fn gpt2_ids_equal_transformers() {
    let tokenizer = Tokenizer::load(&repository("tests/fixtures/gpt2")).unwrap();
    assert_eq!(tokenizer.vocab_size(), 50257);
    compare(&tokenizer, &golden("gpt2.json"));
}

#[test]
fn streaming_the_ids_back_gives_the_text() {
    let tokenizer = Tokenizer::load(&repository("tests/fixtures/gpt2")).unwrap();
    for (text, ids) in golden("gpt2.json") {
        if !text.contains("<|endoftext|>") {
            assert_eq!(streamed(&tokenizer, &ids), text);
        }
    }
}

#[test]
fn one_model_has_one_fingerprint_whatever_file_it_comes_from() {
    let gpt2 = Tokenizer::load(&repository("tests/fixtures/gpt2")).unwrap();
    let again = Tokenizer::load(&repository("tests/fixtures/gpt2")).unwrap();
    let tiny = Tokenizer::load(&repository("tests/golden/tiny-llama")).unwrap();
    let tiny_gguf = Tokenizer::load(&repository("tests/fixtures/gguf/tiny-llama.gguf")).unwrap();
    assert_eq!(gpt2.fingerprint(), again.fingerprint());
    assert_eq!(tiny.fingerprint(), tiny_gguf.fingerprint());
    assert_ne!(tiny.fingerprint(), gpt2.fingerprint());
}

#[test]
fn a_missing_or_broken_file_is_refused_by_name() {
    let missing = Tokenizer::load(Path::new("/nowhere/model.gguf")).err().unwrap().to_string();
    assert!(missing.contains("/nowhere/model.gguf"), "{missing}");
    let no_vocabulary =
        Tokenizer::load(&repository("tests/fixtures/gguf/types.gguf")).err().unwrap().to_string();
    assert!(no_vocabulary.contains("types.gguf"), "{no_vocabulary}");
    let no_json = Tokenizer::load(&repository("tests/fixtures")).err().unwrap().to_string();
    assert!(no_json.contains("tokenizer.json"), "{no_json}");
}
