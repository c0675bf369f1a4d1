//! Runs of `bench-client` against a pair.

use std::process::Stdio;

use tokio::process::{Child, Command};

use crate::{assets, pair::Pair, wait};

/// Runs `bench-client run` with `flags` to its end; what it wrote with `--json-out`.
///
/// # Panics
/// When it fails.
pub async fn run(pair: &Pair, flags: &[&str]) -> serde_json::Value {
    let folder = assets::scratch_folder();
    let file = folder.join("run.json");
    let mut command = against(pair, "run", flags);
    command.arg("--json-out").arg(&file);
    let ended =
        wait::within_patience("the end of a benchmark", command.output()).await.expect("bench-client");
    let said = String::from_utf8_lossy(&ended.stderr);
    assert!(ended.status.success(), "bench-client run {flags:?}: {}\n{said}", ended.status);
    let json = std::fs::read(&file).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
    let _ = std::fs::remove_dir_all(folder);
    serde_json::from_slice(&json).expect("run.json")
}

/// Starts `bench-client run` with `flags`; killed when dropped.
///
/// # Panics
/// When it cannot be started.
pub fn start(pair: &Pair, flags: &[&str]) -> Child {
    against(pair, "run", flags).spawn().expect("bench-client")
}

/// `bench-client SUBCOMMAND` with the addresses of `pair` and `flags`, silent on stdout.
pub fn against(pair: &Pair, subcommand: &str, flags: &[&str]) -> Command {
    let mut command = command(subcommand);
    command
        .args(["--quiet", "--target", &pair.scheduler.address, "--admin", &pair.admin])
        .args(flags)
        .stdout(Stdio::null());
    command
}

/// `bench-client SUBCOMMAND`; killed when dropped.
pub fn command(subcommand: &str) -> Command {
    let mut command = Command::new(assets::program("bench-client"));
    command
        .arg(subcommand)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    command
}
