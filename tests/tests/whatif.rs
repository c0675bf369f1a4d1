//! What `whatif` predicts of a budget that was not recorded, beside what happens under it.

use firstlight_tests::{assets, bench, chain::number, pair::Pair};
use serde_json::Value;

/// Largest share by which a prediction may be off, of the figure or of the recorded TTFT, whichever is larger; machines
/// that others load are slower than their recordings.
const TOLERANCE: f64 = 0.3;

/// Requests at once, and some apart: forwards of many sizes.
const RECORDED: [&str; 8] = [
    "--no-self-check",
    "--unique-prompts",
    "--no-stop-on-eos",
    "--no-prefix-cache",
    "--max-new-tokens",
    "12",
    "--repeat-runs",
    "2",
];

#[tokio::test]
async fn whatif_predicts_budgets_that_were_not_recorded() {
    let pair = Pair::sim().start().await;
    let folder = assets::scratch_folder();
    let file = |name: &str| folder.join(name).to_str().expect("a path in UTF-8").to_owned();
    let (run, forwards) = (file("run.jsonl"), file("forwards.jsonl"));
    let files = ["--num-requests", "64", "--jsonl-out", &run, "--forwards-out", &forwards];
    let recorded = bench::to_json(&pair, "run", &[&RECORDED[..], &files].concat()).await;

    let budgets = ["prefill_max_batch_size=4", "max_active_requests=16", "prefill_max_batch_size=64"];
    let mut words = vec![run.as_str(), "--forwards", &forwards, "--verify", "--slo", "ttft=500ms"];
    words.extend(budgets.iter().flat_map(|budget| ["--set", budget]));
    let told = bench::to_json(&pair, "whatif", &words).await;
    let _ = std::fs::remove_dir_all(&folder);

    let measured = number(&told, "/measured/ttft_mean_ms");
    assert!((measured / number(&recorded, "/ttft/mean_ms") - 1.0).abs() < 1e-6, "the recording is the run");
    for fit in ["/fit/prefill/relative_error", "/fit/decode/relative_error"] {
        assert!(number(&told, fit) < 0.2, "{fit} of a sim whose costs are linear: {}", number(&told, fit));
    }
    let tried = told["budgets"].as_array().expect("budgets");
    assert_eq!(tried.len(), 1 + budgets.len(), "the recorded budget and those asked for");
    for tried in tried {
        for figure in ["ttft_mean_ms", "queue_wait_mean_ms"] {
            let predicted = number(tried, &format!("/predicted/{figure}/value"));
            let live = number(tried, &format!("/live/0/{figure}"));
            println!(
                "{:<32} {figure:<20} predicted {predicted:8.1}   live {live:8.1}",
                tried["change"].to_string()
            );
            let off = (predicted - live) / live.max(measured);
            assert!(off.abs() < TOLERANCE, "{}: {figure} is off by {off:.2}", tried["change"]);
        }
    }
    // Whatever the machine does to the figures, it does not change which budget is the better one.
    let mean = |i: usize| number(&tried[i], "/predicted/queue_wait_mean_ms/value");
    assert!(mean(3) < mean(0) && mean(0) < mean(1), "larger rounds, shorter waits");
}

#[tokio::test]
async fn a_trace_is_replayed_on_more_engines_without_any_server() {
    let pair = Pair::sim().start().await;
    let folder = assets::scratch_folder();
    let path = folder.join("forwards.jsonl");
    let forwards = path.to_str().expect("a path in UTF-8");
    bench::to_json(
        &pair,
        "run",
        &[&RECORDED[..], &["--num-requests", "32", "--forwards-out", forwards]].concat(),
    )
    .await;
    let trace = concat!(env!("CARGO_MANIFEST_DIR"), "/../bench-client/tests/data/azure_code.csv");
    let replay = |engines: &'static str| {
        let words = [
            "--forwards",
            forwards,
            "--dataset",
            "azure",
            "--dataset-path",
            trace,
            "--time-scale",
            "0.01",
            "--max-input-len",
            "1024",
            "--max-output-len",
            "64",
            "--engines",
            engines,
        ];
        let pair = &pair;
        async move { bench::to_json(pair, "whatif", &words).await }
    };
    let (one, four) = (replay("1").await, replay("4").await);
    let _ = std::fs::remove_dir_all(&folder);
    let wait = |told: &Value| number(told, "/budgets/0/predicted/queue_wait_mean_ms/value");
    assert!(wait(&four) < 0.8 * wait(&one), "{} ms with four engines, {} with one", wait(&four), wait(&one));
    assert_eq!(number(&one, "/budgets/0/predicted/failed/value"), 0.0);
}
