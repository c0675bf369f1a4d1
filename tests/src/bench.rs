//! Runs of `bench-client` against a pair.

use std::process::Stdio;

use tokio::process::{Child, Command};

use crate::{assets, pair::Pair, wait};

/// Runs `bench-client run` with `flags` to its end; what it wrote with `--json-out`.
///
/// # Panics
/// When it fails.
pub async fn run(pair: &Pair, flags: &[&str]) -> serde_json::Value {
    to_json(pair, &[&["run"], flags].concat()).await
}

/// Runs a subcommand of `bench-client`, named first in `words`, to its end; what it wrote with `--json-out`.
///
/// # Panics
/// When it fails.
pub async fn to_json(pair: &Pair, words: &[&str]) -> serde_json::Value {
    let folder = assets::scratch_folder();
    let file = folder.join("out.json");
    let mut command = command(pair, words);
    command.arg("--json-out").arg(&file);
    let ended =
        wait::within_patience("the end of a benchmark", command.output()).await.expect("bench-client");
    let said = String::from_utf8_lossy(&ended.stderr);
    assert!(ended.status.success(), "bench-client {words:?}: {}\n{said}", ended.status);
    let json = std::fs::read(&file).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
    let _ = std::fs::remove_dir_all(folder);
    serde_json::from_slice(&json).expect("what --json-out wrote")
}

/// Starts `bench-client run` with `flags`; killed when dropped.
///
/// # Panics
/// When it cannot be started.
pub fn start(pair: &Pair, flags: &[&str]) -> Child {
    command(pair, &[&["run"], flags].concat()).spawn().expect("bench-client")
}

fn command(pair: &Pair, words: &[&str]) -> Command {
    let mut command = Command::new(assets::program("bench-client"));
    command
        .args(words)
        .args(["--quiet", "--target", &pair.scheduler.address, "--admin", &pair.admin])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    command
}
