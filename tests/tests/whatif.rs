//! What `whatif` predicts of a budget that was not recorded, beside what happens under it.

use firstlight_tests::{assets, bench, chain::number, pair::Pair, scrape::Page, wait};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::Child,
};

/// Largest share by which a prediction may be off, of the figure or of the recorded TTFT, whichever is larger; machines
/// that others load are slower than their recordings.
const TOLERANCE: f64 = 0.3;

/// Share by which predictions from one traffic may differ, recorded by its client and by another: forwards at the edges
/// that only one of them saw.
const SAME: f64 = 0.02;

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
    assert_eq!(number(&told, "/inside/of"), 4.0 * budgets.len() as f64, "p50 and p99 of TTFT and queue wait");
    // Whatever the machine does to the figures, it does not change which budget is the better one.
    let mean = |i: usize| number(&tried[i], "/predicted/queue_wait_mean_ms/value");
    assert!(mean(3) < mean(0) && mean(0) < mean(1), "larger rounds, shorter waits");
}

#[tokio::test]
async fn the_search_finds_a_budget_that_is_better_live_as_well() {
    let pair = Pair::sim().start().await;
    let folder = assets::scratch_folder();
    let file = |name: &str| folder.join(name).to_str().expect("a path in UTF-8").to_owned();
    let (run, forwards) = (file("run.jsonl"), file("forwards.jsonl"));
    let files = ["--num-requests", "32", "--jsonl-out", &run, "--forwards-out", &forwards];
    bench::to_json(&pair, "run", &[&RECORDED[..], &files, &["--prefill-max-batch-size", "1"]].concat()).await;
    let words = [run.as_str(), "--forwards", &forwards, "--search", "--slo", "ttft=200ms", "--verify"];
    let told = bench::to_json(&pair, "whatif", &words).await;
    let _ = std::fs::remove_dir_all(&folder);

    assert!(told["notes"][0].as_str().is_some_and(|note| note.starts_with("best of ")), "{}", told["notes"]);
    let [recorded, found] = told["budgets"].as_array().expect("budgets").as_slice() else {
        panic!("the recorded budget and the best one: {}", told["budgets"]);
    };
    let goodput = |tried: &Value| number(tried, "/predicted/goodput_percent/value");
    assert!(goodput(found) > goodput(recorded), "{} meets the objective more often", found["change"]);
    let live = |tried: &Value| number(tried, "/live/0/ttft_mean_ms");
    assert!(
        live(found) < 0.8 * live(recorded),
        "{}: {} and {} ms",
        found["change"],
        live(found),
        live(recorded)
    );
}

#[tokio::test]
async fn a_recording_of_what_another_client_sends_predicts_what_its_own_does() {
    let pair = Pair::sim().start().await;
    let folder = assets::scratch_folder();
    let file = |name: &str| folder.join(name).to_str().expect("a path in UTF-8").to_owned();
    let (heard, heard_forwards) = (file("heard.jsonl"), file("heard-forwards.jsonl"));
    let (own, own_forwards) = (file("own.jsonl"), file("own-forwards.jsonl"));

    let recorder = start_recording(&pair, &heard, &heard_forwards).await;
    let load = ["--num-requests", "48", "--warmup-runs", "0", "--metadata", "x-tenant=a"];
    let files = ["--jsonl-out", &own, "--forwards-out", &own_forwards];
    bench::to_json(&pair, "run", &[&RECORDED[..], &load, &files].concat()).await;
    interrupt(&recorder);
    let ended = wait::within_patience("the end of the recording", recorder.wait_with_output()).await;
    assert!(ended.expect("bench-client").status.success());

    let whatif = |recording, forwards| {
        let words = [recording, "--forwards", forwards, "--set", "prefill_max_batch_size=4"];
        let pair = &pair;
        async move { bench::to_json(pair, "whatif", &words).await }
    };
    let (from_own, from_heard) = (whatif(&own, &own_forwards).await, whatif(&heard, &heard_forwards).await);
    let (own, heard) = (lines(&own), lines(&heard));
    let _ = std::fs::remove_dir_all(&folder);

    // The same requests, as far as both tell of them; what lies before and after the scheduler only the client knows.
    assert_eq!(own.len(), heard.len());
    for (own, heard) in own.iter().zip(&heard) {
        for same in [
            "request_id",
            "outcome",
            "prompt_tokens",
            "max_new_tokens",
            "output_tokens",
            "tenant",
            "queued_ns",
        ] {
            assert_eq!(own[same], heard[same], "{same} of {}", own["request_id"]);
        }
        assert!(heard["deliver_ms"].is_null() && heard["ingress_ms"].is_null() && heard["tenant"] != 0);
    }
    let mean = |name: &str| own.iter().map(|line| number(line, name)).sum::<f64>() / own.len() as f64;
    let outside = mean("/client_lag_ms") + mean("/ingress_ms") + mean("/deliver_ms");
    for budget in [0, 1] {
        let told =
            |told: &Value, figure: &str| number(told, &format!("/budgets/{budget}/predicted/{figure}/value"));
        for figure in ["queue_wait_mean_ms", "queue_wait_p50_ms", "queue_wait_p99_ms", "itl_p50_ms"] {
            let (own, heard) = (told(&from_own, figure), told(&from_heard, figure));
            assert!((heard / own - 1.0).abs() < SAME, "{figure}: {heard} from spans, {own} from the run");
        }
        let (own, heard) = (told(&from_own, "ttft_mean_ms"), told(&from_heard, "ttft_mean_ms"));
        assert!(((heard + outside) / own - 1.0).abs() < SAME, "TTFT {heard} + {outside} and {own}");
    }
}

#[tokio::test]
async fn a_recording_that_ends_waits_for_the_requests_in_flight() {
    // Some 3 s from the first token to the last.
    let pair = Pair::sim().engine(&["--sim-time-scale", "4"]).start().await;
    let folder = assets::scratch_folder();
    let file = |name: &str| folder.join(name).to_str().expect("a path in UTF-8").to_owned();
    let heard = file("heard.jsonl");
    let recorder = start_recording(&pair, &heard, &file("forwards.jsonl")).await;
    let load = ["--num-requests", "1", "--warmup-runs", "0", "--no-self-check", "--no-stop-on-eos"];
    let bench = bench::start(&pair, &[&load[..], &["--max-new-tokens", "200"]].concat());
    wait::until("its first token", || async {
        let tokens = Page::of(&pair.scheduler_metrics).await.sum("firstlight_output_tokens_total");
        (tokens > 0.0).then_some(())
    })
    .await;
    interrupt(&recorder);
    let ended = wait::within_patience("the end of the recording", recorder.wait_with_output()).await;
    assert!(ended.expect("bench-client").status.success());
    bench.ended(wait::PATIENCE).await;
    let lines = lines(&heard);
    let _ = std::fs::remove_dir_all(&folder);
    let told: Vec<_> = lines.iter().map(|line| (&line["outcome"], &line["output_tokens"])).collect();
    assert_eq!(told, [(&Value::from("finished"), &Value::from(200))]);
}

/// `record`, once it listens.
async fn start_recording(pair: &Pair, jsonl: &str, forwards: &str) -> Child {
    let mut recorder = bench::command("record");
    recorder.args(["--target", pair.front(), "--admin", &pair.admin]);
    recorder.args(["--jsonl-out", jsonl, "--forwards-out", forwards]);
    let mut recorder = recorder.spawn().expect("bench-client");
    let mut said = BufReader::new(recorder.stderr.take().expect("stderr is piped")).lines();
    let begins =
        wait::within_patience("the recording", said.next_line()).await.expect("stderr").expect("a line");
    assert!(begins.contains(pair.front()), "{begins}");
    recorder.stderr = Some(said.into_inner().into_inner());
    recorder
}

/// Ctrl-C.
fn interrupt(recorder: &Child) {
    let id = i32::try_from(recorder.id().expect("it runs until Ctrl-C")).expect("a process id");
    kill_process(Pid::from_raw(id).expect("a process id"), Signal::INT).expect("Ctrl-C to a child");
}

/// The lines of a recording by request id.
fn lines(path: &str) -> Vec<Value> {
    let text = std::fs::read_to_string(path).expect("a recording");
    let mut lines: Vec<Value> =
        text.lines().map(|line| serde_json::from_str(line).expect("a line of JSON")).collect();
    lines.sort_by_key(|line| line["request_id"].to_string());
    lines
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
