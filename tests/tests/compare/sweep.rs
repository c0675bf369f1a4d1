//! `bench-client sweep`: finds where goodput saturates, gives up what is hopeless, goes on from its file.

use std::{
    fs,
    path::{Path, PathBuf},
};

use firstlight_tests::{assets, bench, pair::Pair, wait};
use rustix::process::{Pid, Signal, kill_process};

/// One request at a time takes some 25 ms: 20 a second are served at once, 200 are not.
const GRID: [&str; 2] = ["--vary", "request-rate=200,10,400,20"];
const LOAD: [&str; 12] = [
    "--num-requests",
    "40",
    "--max-new-tokens",
    "4",
    "--max-active-requests",
    "1",
    "--slo",
    "ttft=200ms",
    "--warmup-runs",
    "0",
    "--no-self-check",
    "--unique-prompts",
];

struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Self {
        Self(assets::scratch_folder())
    }

    fn file(&self, name: &str) -> String {
        self.0.join(name).to_str().unwrap().to_owned()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[tokio::test]
async fn goodput_saturates_where_the_server_does_and_more_load_is_not_tried() {
    let (pair, scratch) = (Pair::sim().start().await, Scratch::new());
    let (out, csv, html) =
        (scratch.file("sweep.jsonl"), scratch.file("sweep.csv"), scratch.file("sweep.html"));
    let said = sweep(&pair, &["--out", &out, "--csv-out", &csv, "--html-out", &html]).await;
    assert!(said.contains("saturates at request-rate 20"), "{said}");
    assert!(said.contains("not measured: request-rate 400: request-rate 200 was given up"), "{said}");
    assert_eq!(lines(&out), 3, "10, 20 and 200 were measured");
    let table = fs::read_to_string(csv).unwrap();
    assert!(table.lines().nth(3).unwrap().contains("given up when 21 of 40"), "{table}");
    assert!(fs::read_to_string(html).unwrap().contains("saturates at request-rate 20"));
    println!("{said}");

    let again = sweep(&pair, &["--out", &out]).await;
    assert_eq!((lines(&out), &again), (3, &said), "nothing is measured twice");
    let other = command(&pair, &["--out", &out, "--prompt", "Other"]).output().await.unwrap();
    assert!(!other.status.success(), "points of another load must not mix");
    assert!(String::from_utf8_lossy(&other.stderr).contains("--fresh"));
}

#[tokio::test]
async fn an_interrupted_sweep_keeps_its_points_and_goes_on() {
    let (pair, scratch) = (Pair::sim().start().await, Scratch::new());
    let out = scratch.file("sweep.jsonl");
    let running = command(&pair, &["--out", &out]).spawn().unwrap();
    wait::until("a measured point", || async { (lines(&out) > 0).then_some(()) }).await;
    let pid = Pid::from_raw(running.id().unwrap().cast_signed()).unwrap();
    kill_process(pid, Signal::INT).unwrap();
    let ended = wait::within_patience("its end", running.wait_with_output()).await.unwrap();
    let said = String::from_utf8_lossy(&ended.stdout).into_owned();
    assert!(!ended.status.success() && said.contains("interrupted"), "{said}");
    let kept = fs::read_to_string(&out).unwrap();
    assert!((1..3).contains(&kept.lines().count()), "{kept}");

    let said = sweep(&pair, &["--out", &out]).await;
    assert!(said.contains("saturates at request-rate 20"), "{said}");
    assert!(fs::read_to_string(&out).unwrap().starts_with(&kept), "what was kept is used as it is");
}

#[tokio::test]
async fn limits_are_swept_under_leases_and_restored() {
    let (pair, scratch) = (Pair::sim().start().await, Scratch::new());
    let out = scratch.file("sweep.jsonl");
    let mut command = bench::command("sweep");
    command.args(["--target", &pair.scheduler.address, "--admin", &pair.admin, "--out", &out]);
    command.args(["--vary", "max-active-requests=1,8", "--num-requests", "24", "--max-new-tokens", "8"]);
    command.args(["--warmup-runs", "0", "--no-self-check"]);
    let ended = command.output().await.unwrap();
    let said = String::from_utf8_lossy(&ended.stdout);
    assert!(ended.status.success(), "{said}{}", String::from_utf8_lossy(&ended.stderr));
    assert!(said.contains("best goodput") && said.contains("at max-active-requests 8"), "{said}");
    let first: serde_json::Value =
        serde_json::from_str(fs::read_to_string(&out).unwrap().lines().next().unwrap()).unwrap();
    assert_eq!(first["results"]["run"]["budget"]["max_active_requests"], "1");
}

/// Runs the sweep to its end; its table.
async fn sweep(pair: &Pair, more: &[&str]) -> String {
    let ended = wait::within_patience("a sweep", command(pair, more).output()).await.unwrap();
    let said = String::from_utf8_lossy(&ended.stdout).into_owned();
    assert!(ended.status.success(), "{said}{}", String::from_utf8_lossy(&ended.stderr));
    said
}

fn command(pair: &Pair, more: &[&str]) -> tokio::process::Command {
    let mut command = bench::command("sweep");
    command.args(["--target", &pair.scheduler.address, "--admin", &pair.admin]);
    command.args(GRID).args(LOAD).args(more);
    command
}

fn lines(path: impl AsRef<Path>) -> usize {
    fs::read_to_string(path).map_or(0, |text| text.lines().count())
}
