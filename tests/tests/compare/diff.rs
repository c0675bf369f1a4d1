//! `bench-client diff`: noise is called noise, a known change is found, placed and fails CI.

use std::path::{Path, PathBuf};

use firstlight_tests::{assets, bench, pair::Pair};
use serde_json::Value;

/// Requests that do not wait for each other, so that what is injected into one makes no other wait.
const LOAD: [[&str; 2]; 6] = [
    ["--num-requests", "60"],
    ["--request-rate", "40"],
    ["--arrival", "constant"],
    ["--max-new-tokens", "2"],
    ["--warmup-runs", "0"],
    ["--repeat-runs", "3"],
];

#[tokio::test]
async fn an_injected_prefill_delay_is_found_and_placed_in_prefill() {
    let folder = assets::scratch_folder();
    let (a, b) = (folder.join("a.jsonl"), folder.join("b.jsonl"));
    run(&Pair::sim().start().await, &a, &[]).await;
    run(&Pair::sim().engine(&["--inject-delay", "prefill=5"]).start().await, &b, &[]).await;
    let (code, diff, said) = diff(&a, &b, &["--fail-if", "prefill_mean>+2ms"]).await;
    assert_eq!(code, 1, "a limit of 2 ms is exceeded by 5: {said}");
    let segments = diff["ttft"]["mean"]["segments"].as_array().unwrap();
    for entry in segments {
        let (name, moved) = (entry[0].as_str().unwrap(), &entry[1]);
        let (ms, half) = (moved["moved_ms"].as_f64().unwrap(), moved["half_width_ms"].as_f64().unwrap());
        if name == "prefill" {
            assert!(ms > half && (4.5..7.0).contains(&ms), "prefill moved by {ms} ± {half} ms");
        } else {
            assert!(ms.abs() - half < 1.0, "{name} moved by {ms} ± {half} ms");
        }
    }
    let page = page(&a, &b).await;
    let sentence = page.lines().find(|line| line.starts_with("TTFT mean")).unwrap();
    assert!(sentence.contains(": prefill +"), "prefill is named first: {sentence}");
    println!("{page}");
    std::fs::remove_dir_all(folder).unwrap();
}

#[tokio::test]
async fn runs_of_other_loads_are_refused_with_both_named() {
    let folder = assets::scratch_folder();
    let (a, b) = (folder.join("a.jsonl"), folder.join("b.jsonl"));
    let pair = Pair::sim().start().await;
    run(&pair, &a, &[]).await;
    run(&pair, &b, &["--load-seed", "7"]).await;
    let (code, _, said) = diff(&a, &b, &[]).await;
    assert_eq!(code, 2);
    assert!(
        said.contains("not the same load") && said.contains("seed 0") && said.contains("seed 7"),
        "{said}"
    );
    let (code, _, said) = diff(&a, &folder.join("none.jsonl"), &[]).await;
    assert!(code == 2 && said.contains("none.jsonl"), "{said}");
    std::fs::remove_dir_all(folder).unwrap();
}

#[tokio::test]
async fn pairs_without_a_difference_are_called_noise() {
    covered(4, 3).await;
}

#[tokio::test]
#[ignore = "forty live runs: make test-long"]
async fn of_twenty_pairs_without_a_difference_at_least_eighteen_intervals_cover_zero() {
    covered(20, 18).await;
}

/// Runs `pairs` A/A pairs against one pair of services; at least `least` intervals of each statistic
/// must cover 0.
async fn covered(pairs: usize, least: usize) {
    let folder = assets::scratch_folder();
    let pair = Pair::sim().start().await;
    let load = ["--prefill-max-batch-size", "2", "--max-active-requests", "4", "--max-new-tokens", "6"];
    let mut cover = [("mean", 0), ("p50", 0), ("p99", 0)];
    for i in 0..pairs {
        let files = ["a", "b"].map(|side| folder.join(format!("{side}{i}.jsonl")));
        for file in &files {
            run(&pair, file, &load).await;
        }
        let (code, diff, said) = diff(&files[0], &files[1], &[]).await;
        assert_eq!(code, 0, "{said}");
        let mut words = Vec::new();
        for (statistic, n) in &mut cover {
            let ttft = &diff["ttft"][*statistic]["ttft"];
            let (ms, half) = (ttft["moved_ms"].as_f64().unwrap(), ttft["half_width_ms"].as_f64().unwrap());
            *n += usize::from(ms.abs() <= half);
            words.push(format!("{statistic} {ms:+.3} ± {half:.3}"));
        }
        println!("A/A pair {i:2}: TTFT {} ms", words.join(", "));
    }
    println!("intervals that cover 0, of {pairs}: {cover:?}");
    for (statistic, n) in cover {
        assert!(n >= least, "{n} of {pairs} {statistic} intervals cover 0");
    }
    std::fs::remove_dir_all(folder).unwrap();
}

async fn run(pair: &Pair, lines: &Path, more: &[&str]) {
    // A flag may stand once: what `more` says replaces what LOAD says.
    let usual = LOAD.iter().filter(|[flag, _]| !more.contains(flag)).flatten();
    let mut flags: Vec<&str> = usual.chain(more).copied().collect();
    flags.extend(["--no-self-check", "--jsonl-out", lines.to_str().unwrap()]);
    let ended = bench::against(pair, "run", &flags).output().await.unwrap();
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
}

/// Exit code, JSON and what was said on stderr.
async fn diff(a: &Path, b: &Path, more: &[&str]) -> (i32, Value, String) {
    let out = bench::command("diff").arg(a).arg(b).arg("--json").args(more).output().await.unwrap();
    let json = serde_json::from_slice(&out.stdout).unwrap_or(Value::Null);
    (out.status.code().unwrap(), json, String::from_utf8_lossy(&out.stderr).into_owned())
}

async fn page(a: &PathBuf, b: &PathBuf) -> String {
    let out = bench::command("diff").arg(a).arg(b).output().await.unwrap();
    String::from_utf8(out.stdout).unwrap()
}
