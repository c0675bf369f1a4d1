//! The conservation audit over a live pair: it passes when the ledgers are honest, and names the pair that disagrees
//! when they are not.

use firstlight_tests::{
    bench::{self, Ended},
    pair::Pair,
    wait,
};

/// Mixed load of which some clients hang up, with requests that wait and sequences that give way.
#[rustfmt::skip]
const LOAD: &[&str] = &[
    "--no-self-check", "--warmup-runs", "1", "--num-requests", "600", "--max-concurrency", "96",
    "--dataset", "random", "--input-len", "8..120", "--output-len", "4..40",
    "--hang-up", "0.05", "--hang-up-within-ms", "400", "--allow-failures", "--audit",
];

#[tokio::test]
async fn honest_ledgers_balance() {
    let ended = audited(&[]).await;
    show(&ended);
    assert!(ended.output.status.success(), "{}", ended.said());
    assert_eq!(disagreements(&ended), Vec::<String>::new());
    let checks = ended.results["audit"]["checks"].as_array().expect("an audit");
    assert!(checks.len() >= 13, "{checks:#?}");
    assert!(ended.requests.iter().any(|r| r["outcome"] == "cancelled"), "some hung up");
}

#[tokio::test]
async fn one_percent_of_requests_without_spans_and_timeline_is_found() {
    let ended = audited(&["--drop-spans", "0.01", "--omit-timelines", "1"]).await;
    show(&ended);
    assert!(!ended.output.status.success(), "the run passed");
    let found = disagreements(&ended);
    assert!(found.contains(&"first tokens: client ⇄ complete chains".to_owned()), "{found:?}");
    assert!(found.contains(&"first tokens: timelines ⇄ scheduler's histogram".to_owned()), "{found:?}");
    let said = ended.said();
    assert!(said.contains("audit: first tokens: client"), "the pair is named: {said}");
}

#[tokio::test]
async fn one_forgotten_cancelled_request_is_found() {
    let ended = audited(&["--forget-cancelled", "1"]).await;
    show(&ended);
    assert!(!ended.output.status.success(), "the run passed");
    let found = disagreements(&ended);
    assert!(found.contains(&"requests: client sent ⇄ scheduler received".to_owned()), "{found:?}");
}

async fn audited(flags: &[&str]) -> Ended {
    let pair = Pair::sim()
        .engine(&["--kv-blocks", "260"])
        .scheduler(&["--kv-promise", "optimistic", "--kv-margin-tokens", "0"])
        .start()
        .await;
    let listeners =
        ["--scheduler-metrics", &pair.scheduler_metrics, "--engine-metrics", &pair.engine_metrics[0]];
    bench::start(&pair, &[LOAD, &listeners, flags].concat()).ended(wait::PATIENCE).await
}

fn disagreements(ended: &Ended) -> Vec<String> {
    let checks = ended.results["audit"]["checks"].as_array().expect("an audit");
    let figure = |check: &serde_json::Value, side: &str| check[side][1].as_f64().expect("a figure");
    let apart = |check: &&serde_json::Value| {
        (figure(check, "left") - figure(check, "right")).abs()
            > check["tolerance"].as_f64().expect("a tolerance")
    };
    let words = |value: &serde_json::Value| value.as_str().expect("words").to_owned();
    let pair = |check: &serde_json::Value| {
        format!("{}: {} ⇄ {}", words(&check["what"]), words(&check["left"][0]), words(&check["right"][0]))
    };
    checks.iter().filter(apart).map(pair).collect()
}

fn show(ended: &Ended) {
    for check in ended.results["audit"]["checks"].as_array().into_iter().flatten() {
        println!(
            "{} | {} {} | {} {} | ± {}",
            check["what"],
            check["left"][0],
            check["left"][1],
            check["right"][0],
            check["right"][1],
            check["tolerance"]
        );
    }
    println!("{}", ended.said());
}
