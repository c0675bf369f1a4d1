//! The client against servers in this process, over real sockets on loopback.

use std::process::{Command, Output};

use axum::{Router, http::StatusCode, routing};
use bench_client::{
    selfcheck::null_server,
    target::{Ask, Firstlight, Outcome, Prompt, Record, firstlight::Common},
};
use firstlight_proto::clock::Clock;
use tokio_util::sync::CancellationToken;

const TOKENS: u32 = 5;

fn ask() -> Ask {
    Ask::new(Prompt::Text("Hello".into()), TOKENS)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_stamps_of_a_request_are_in_the_order_of_its_life() {
    let (clock, stop) = (Clock::new(), CancellationToken::new());
    let addr = null_server::start(clock, stop.clone()).await.unwrap();
    let server = Firstlight::connect(&addr.to_string(), 2, clock, Common::default()).await.unwrap();
    let mut record = Record::new("r".into(), 0, 0, clock.now());
    server.generate(ask(), &mut record, |_, _| {}).await;
    assert_eq!(record.outcome, Outcome::Finished);
    assert_eq!(record.output_tokens(), u64::from(TOKENS));
    let life = [
        Some(record.submit_start),
        record.sent,
        record.stream_open,
        record.submit_end,
        record.first_token(),
        record.last_token(),
        record.ended,
    ];
    assert!(life.iter().all(Option::is_some) && life.is_sorted(), "{life:?}");
    stop.cancel();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_went_away_is_unavailable() {
    let (clock, stop) = (Clock::new(), CancellationToken::new());
    let addr = null_server::start(clock, stop.clone()).await.unwrap();
    let server = Firstlight::connect(&addr.to_string(), 1, clock, Common::default()).await.unwrap();
    stop.cancel();
    let mut record = Record::new("r".into(), 0, 0, clock.now());
    // The shutdown lets running streams end; one of the next requests meets the closed connection.
    for _ in 0..200 {
        record = Record::new("r".into(), 0, 0, clock.now());
        server.generate(ask(), &mut record, |_, _| {}).await;
        if !record.completed() {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    assert!(matches!(record.outcome, Outcome::Failed { kind: "unavailable", .. }), "{:?}", record.outcome);
    assert!(record.ended.is_some() && record.first_token().is_none());
}

#[tokio::test]
async fn a_request_that_its_own_client_gives_up_is_cancelled() {
    // Takes connections and says nothing.
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = silent.local_addr().unwrap().to_string();
    let common = Common { timeout: Some(std::time::Duration::from_millis(50)), ..Common::default() };
    let clock = Clock::new();
    let server = Firstlight::connect(&addr, 1, clock, common).await.unwrap();
    let mut record = Record::new("r".into(), 0, 0, clock.now());
    server.generate(ask(), &mut record, |_, _| {}).await;
    assert!(matches!(record.outcome, Outcome::Failed { kind: "cancelled", .. }), "{:?}", record.outcome);
}

const COMPLETION: &str = "data: {\"choices\":[{\"text\":\" Paris\"}]}\n\ndata: {\"choices\":[{\"text\":\".\"}]}\n\n\
    data: {\"choices\":[],\"usage\":{\"prompt_tokens\":4,\"completion_tokens\":2}}\n\ndata: [DONE]\n\n";

/// A server that speaks OpenAI's API: every third completion is refused.
async fn openai_server() -> String {
    let served = std::sync::atomic::AtomicUsize::new(0);
    let complete = move |_: String| {
        let nth = served.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let refused = (StatusCode::TOO_MANY_REQUESTS, "slow down".to_owned());
        std::future::ready(if nth % 3 == 2 { refused } else { (StatusCode::OK, COMPLETION.to_owned()) })
    };
    let complete = std::sync::Arc::new(complete);
    let models = || std::future::ready(r#"{"data":[{"id":"tiny"}]}"#);
    let router = Router::new()
        .route("/v1/models", routing::get(models))
        .route("/v1/completions", routing::post(move |body: String| complete(body)));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, router).await });
    base
}

async fn bench(args: &[&str]) -> Output {
    let args: Vec<String> = args.iter().map(|s| (*s).to_owned()).collect();
    let run =
        move || Command::new(env!("CARGO_BIN_EXE_bench-client")).arg("run").args(args).output().unwrap();
    tokio::task::spawn_blocking(run).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn failures_of_an_http_server_are_counted_by_kind_and_fail_the_run() {
    let base = openai_server().await;
    let common =
        ["--openai", &base, "--num-requests", "9", "--warmup-runs", "0", "--json", "--max-concurrency", "2"];
    let out = bench(&common).await;
    assert!(!out.status.success(), "a refused request fails the run");
    assert!(String::from_utf8_lossy(&out.stderr).contains("slow down"));

    let out = bench(&[&common[..], &["--allow-failures"]].concat()).await;
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let json: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap();
    assert_eq!(json["requests"]["completed"], 6);
    assert_eq!(json["requests"]["failed_by_kind"]["full"], 3);
    assert_eq!((&json["total_output_tokens"], &json["requests"]["prompt_tokens"]), (&12.into(), &24.into()));
    assert_eq!((&json["ttft"]["n"], &json["cap_wait"]["n"]), (&6.into(), &9.into()));
    assert_eq!(
        json["segments"]["prefill"]["mean_ms"],
        serde_json::Value::Null,
        "nothing unmeasured is a number"
    );
    assert_eq!(json["run"]["model"], "tiny");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_flag_names_itself_and_sends_nothing() {
    let out = bench(&["--openai", "http://127.0.0.1:9", "--request-rate", "-1"]).await;
    assert!(!out.status.success());
    let out = bench(&["--openai", "http://127.0.0.1:9", "--request-rate", "0"]).await;
    assert!(String::from_utf8_lossy(&out.stderr).contains("--request-rate 0 must be a positive number"));
}
