//! What a person sees who asks for a GPU where there is none.

use std::env;
use std::process::Command;

use firstlight_cuda::driver::{DriverError, Gpu};

#[test]
fn a_machine_without_a_gpu_is_told_so() {
    // Built beside the tests.
    let test = env::current_exe().expect("path of this test");
    let folder =
        test.parent().and_then(|deps| deps.parent()).expect("tests are built into target/PROFILE/deps");
    let output = Command::new(folder.join("examples/check_on_gpu"))
        .args(["run", "/nonexistent"])
        .output()
        .expect("it runs");
    let (said, found) = (String::from_utf8_lossy(&output.stderr), String::from_utf8_lossy(&output.stdout));
    let (code, told) = match Gpu::open(0) {
        Err(error) => (2, said.contains(&error.to_string())),
        // Then what is wrong is that nothing was compiled.
        Ok(_) => (1, found.contains("not in the cache")),
    };
    assert!(output.status.code() == Some(code) && told, "{found}{said}");
}

#[test]
fn what_is_missing_is_named() {
    match Gpu::open(0) {
        Err(DriverError::NoDriver(reason)) => assert!(reason.contains("libcuda.so.1"), "{reason}"),
        Err(error) => assert!(!error.to_string().is_empty()),
        Ok(gpu) => assert!(gpu.architecture().sm >= 80 && gpu.memory().expect("its memory").1 > 0),
    }
}
