//! What `tests/gpu/check.sh run` makes of what its parts say, with stand-ins for them.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const WELL: &str = "exit 0";

/// A folder as `check.sh pack` fills it, and a compute-sanitizer.
struct Packed(PathBuf);

impl Packed {
    fn new(name: &str, kernels: &str, serve: &str, sanitizer: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("check-script-{}-{name}", std::process::id()));
        let gpu = folder.join("tests/gpu");
        fs::create_dir_all(&gpu).unwrap();
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/gpu/check.sh");
        fs::copy(script, gpu.join("check.sh")).unwrap();
        let programs = [
            (folder.join("check_on_gpu"), kernels),
            (gpu.join("serve.sh"), serve),
            (folder.join("bin/compute-sanitizer"), sanitizer),
        ];
        fs::create_dir_all(folder.join("bin")).unwrap();
        for (path, body) in programs {
            fs::write(&path, format!("#!/bin/sh\n{body}\n")).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        }
        Self(folder)
    }

    fn run(&self) -> Output {
        let path = format!("{}:{}", self.0.join("bin").display(), std::env::var("PATH").unwrap());
        let mut script = Command::new(self.0.join("tests/gpu/check.sh"));
        script.args(["run", "results"]).current_dir(&self.0).env("PATH", path).env("SANITIZER_SECONDS", "1");
        script.output().unwrap()
    }

    fn has(&self, result: &str) -> bool {
        self.0.join("results").join(result).exists()
    }
}

impl Drop for Packed {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The exit status, and what was said on standard error.
fn outcome(output: &Output) -> (Option<i32>, String) {
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn where_there_is_no_gpu_nothing_else_is_tried() {
    let packed = Packed::new("none", "exit 2", "touch results/served", WELL);
    assert_eq!(packed.run().status.code(), Some(2));
    assert!(!packed.has("served") && !packed.has("kernels.json"));
}

#[test]
fn a_wrong_kernel_is_a_failure_and_the_rest_is_measured_all_the_same() {
    for kernels in ["echo '{}'; exit 1", "kill -SEGV $$"] {
        let packed = Packed::new("wrong", kernels, "touch $1/served", WELL);
        assert_eq!(packed.run().status.code(), Some(1), "{kernels}");
        assert!(packed.has("served") && packed.has("kernels.json"));
    }
}

#[test]
fn results_lie_in_one_archive_as_well() {
    let packed = Packed::new("all", "echo '{}'", "touch $1/served", WELL);
    let ran = packed.run();
    assert_eq!(ran.status.code(), Some(0), "{}", outcome(&ran).1);
    let all = packed.0.join("results/all.tar.gz");
    let listed = Command::new("tar").arg("-tzf").arg(all).output().unwrap();
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    for file in ["./kernels.json", "./served", "./memcheck.txt", "./racecheck.txt"] {
        assert!(listed.lines().any(|line| line == file), "{file} is not in\n{listed}");
    }
}

#[test]
fn a_sanitizer_that_finds_something_is_a_failure() {
    let packed = Packed::new("found", WELL, WELL, "echo '========= Invalid __global__ read'; exit 1");
    let (status, said) = outcome(&packed.run());
    assert!(status == Some(1) && said.contains("memcheck found something"), "{said}");
}

#[test]
fn a_sanitizer_that_cannot_run_or_takes_too_long_did_not_run() {
    for (sanitizer, why) in [
        ("echo '========= Error: Device not supported.'; exit 1", "does not support this machine"),
        ("exec sleep 60", "did not end in time"),
    ] {
        let packed = Packed::new("slow", WELL, WELL, sanitizer);
        let (status, said) = outcome(&packed.run());
        assert!(status == Some(0) && said.contains(why), "{said}");
    }
}

#[test]
fn what_a_sanitizer_found_before_its_time_was_over_counts() {
    let packed = Packed::new(
        "cut",
        WELL,
        WELL,
        "echo '========= Invalid __global__ read of size 4 bytes'; exec sleep 60",
    );
    assert_eq!(packed.run().status.code(), Some(1));
}
