//! With the feature `torch`: compiles shim/shim.cpp to a shared library that the program carries in itself.
//!
//! Symbols of libtorch_cuda stay open until the library is loaded beside it, so neither it nor a GPU is needed here.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

fn main() {
    println!("cargo:rerun-if-changed=shim/shim.cpp");
    for name in ["LIBTORCH", HEADERS, "CXX"] {
        println!("cargo:rerun-if-env-changed={name}");
    }
    if env::var_os("CARGO_FEATURE_TORCH").is_some() {
        compile();
    }
}

const HEADERS: &str = "CUDA_HEADERS";

fn compile() {
    let libtorch = folder("LIBTORCH", "the folder of libtorch 2.11.0, as `make setup` unpacks it");
    let cuda = folder(HEADERS, "the folder of cuda_runtime_api.h 13.0, as `make setup` unpacks it");
    let out = Path::new(&env::var_os("OUT_DIR").expect("cargo sets it")).join("shim.so");
    let compiler = env::var("CXX").unwrap_or_else(|_| "c++".into());
    let mut command = Command::new(&compiler);
    command.args(["-std=c++17", "-O2", "-fPIC", "-shared", "-Wall", "-Wextra", "-Wno-unused-parameter"]);
    // Not ours to mend.
    for include in ["include", "include/torch/csrc/api/include"] {
        command.arg("-isystem").arg(libtorch.join(include));
    }
    command.arg("-isystem").arg(&cuda).arg("shim/shim.cpp").arg("-o").arg(&out);
    command.arg(format!("-L{}", libtorch.join("lib").display())).args(["-lc10", "-ltorch_cpu", "-lc10_cuda"]);
    let status = command.status().unwrap_or_else(|error| panic!("{compiler}: {error}"));
    assert!(status.success(), "shim/shim.cpp does not compile");
}

fn folder(name: &str, what: &str) -> PathBuf {
    let path = env::var_os(name).unwrap_or_else(|| panic!("{name} must be set: {what}"));
    PathBuf::from(path)
}
