//! Runs of `bench-client` against a pair.

use std::{
    path::PathBuf,
    process::{Output, Stdio},
    time::Duration,
};

use serde_json::Value;
use tokio::process::{Child, Command};

use crate::{assets, pair::Pair, wait};

/// A run under way; killed when dropped.
pub struct Started {
    child: Child,
    folder: PathBuf,
}

/// What a run left behind.
pub struct Ended {
    /// The process.
    pub output: Output,
    /// What it wrote with `--json-out`; `Null` when it wrote nothing.
    pub results: Value,
    /// What it wrote with `--jsonl-out`: one object per request.
    pub requests: Vec<Value>,
}

/// Runs `bench-client run` with `flags` to its end; what it wrote with `--json-out`.
///
/// # Panics
/// When it fails.
pub async fn run(pair: &Pair, flags: &[&str]) -> Value {
    let ended = start(pair, flags).ended(wait::PATIENCE).await;
    assert!(ended.output.status.success(), "bench-client run {flags:?}: {}", ended.said());
    ended.results
}

/// Runs another subcommand of `bench-client` against a pair to its end; what it wrote with `--json-out`.
///
/// # Panics
/// When it fails.
pub async fn to_json(pair: &Pair, subcommand: &str, flags: &[&str]) -> Value {
    let folder = assets::scratch_folder();
    let file = folder.join("out.json");
    let mut command = against(pair, subcommand, flags);
    command.arg("--json-out").arg(&file);
    let ended =
        wait::within_patience("the end of bench-client", command.output()).await.expect("bench-client");
    let said = String::from_utf8_lossy(&ended.stderr);
    assert!(ended.status.success(), "bench-client {subcommand} {flags:?}: {}\n{said}", ended.status);
    let json = std::fs::read(&file).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
    let _ = std::fs::remove_dir_all(folder);
    serde_json::from_slice(&json).expect("what --json-out wrote")
}

/// Starts `bench-client run` with `flags`.
///
/// # Panics
/// When it cannot be started.
pub fn start(pair: &Pair, flags: &[&str]) -> Started {
    let folder = assets::scratch_folder();
    let mut command = against(pair, "run", flags);
    command.arg("--json-out").arg(folder.join("run.json")).arg("--jsonl-out").arg(folder.join("run.jsonl"));
    Started { child: command.spawn().expect("bench-client"), folder }
}

/// `bench-client SUBCOMMAND` with the addresses of `pair` and `flags`, silent on stdout.
pub fn against(pair: &Pair, subcommand: &str, flags: &[&str]) -> Command {
    let mut command = command(subcommand);
    command
        .args(["--quiet", "--target", pair.front(), "--admin", &pair.admin])
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

impl Started {
    /// Waits for its end.
    ///
    /// # Panics
    /// When it does not end within `patience`.
    pub async fn ended(self, patience: Duration) -> Ended {
        let ended = tokio::time::timeout(patience, self.child.wait_with_output()).await;
        let output = ended.unwrap_or_else(|_| panic!("a benchmark did not end within {patience:?}"));
        let parse = |text: &str| serde_json::from_str(text).expect("JSON of bench-client");
        let read = |name: &str| std::fs::read_to_string(self.folder.join(name)).unwrap_or_default();
        let (results, requests) = (read("run.json"), read("run.jsonl"));
        let _ = std::fs::remove_dir_all(self.folder);
        Ended {
            output: output.expect("bench-client"),
            results: if results.is_empty() { Value::Null } else { parse(&results) },
            requests: requests.lines().map(parse).collect(),
        }
    }

    /// Kills it at once.
    ///
    /// # Panics
    /// When it cannot be killed.
    pub async fn kill(mut self) {
        self.child.kill().await.expect("killed");
    }
}

impl Ended {
    /// What it said on stderr.
    pub fn said(&self) -> String {
        format!("{}\n{}", self.output.status, String::from_utf8_lossy(&self.output.stderr))
    }
}
