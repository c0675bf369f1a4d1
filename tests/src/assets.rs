//! Where the programs under test, the model and the golden files lie. A missing one fails the test by name.

use std::{
    env,
    path::{Path, PathBuf},
};

/// A program of this workspace, from the folder the test itself was built into.
///
/// # Panics
/// When it has not been built.
pub fn program(name: &str) -> PathBuf {
    let path = build_folder().join(name);
    assert!(path.is_file(), "{} is not built; `make build` builds it", path.display());
    path
}

/// The demo's model, SmolLM2-135M-Instruct as GGUF: `$FIRSTLIGHT_MODEL`, or where `make setup` puts it.
///
/// # Panics
/// When it is not there.
pub fn smollm2() -> PathBuf {
    let path = env::var_os("FIRSTLIGHT_MODEL").map_or_else(
        || cache_folder().join("firstlight/models/SmolLM2-135M-Instruct.Q4_1.gguf"),
        PathBuf::from,
    );
    assert!(path.is_file(), "{} is not there; `make setup` fetches it", path.display());
    path
}

/// A random Llama of 200 KB as GGUF, with a tokenizer; its golden file is `tiny-llama/golden.json`.
pub fn tiny_llama() -> PathBuf {
    fixtures().join("gguf/tiny-llama.gguf")
}

/// A golden file, parsed.
///
/// # Panics
/// When it is missing or no JSON.
pub fn golden(path: &str) -> serde_json::Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden").join(path);
    let text = std::fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    serde_json::from_slice(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// Committed input files.
pub fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures")
}

/// A new folder of this test under the build folder; the caller removes it.
pub fn scratch_folder() -> PathBuf {
    let folder = build_folder().join("tests").join(uuid::Uuid::now_v7().to_string());
    std::fs::create_dir_all(&folder).expect("scratch folder");
    folder
}

fn build_folder() -> PathBuf {
    let test = env::current_exe().expect("path of this test");
    let folder = test.parent().and_then(Path::parent).expect("tests are built into target/PROFILE/deps");
    folder.to_owned()
}

fn cache_folder() -> PathBuf {
    let set = env::var_os("XDG_CACHE_HOME").filter(|folder| !folder.is_empty()).map(PathBuf::from);
    set.unwrap_or_else(|| PathBuf::from(env::var_os("HOME").expect("HOME")).join(".cache"))
}
