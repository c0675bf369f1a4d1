//! The breakdown is tested by truth: a known delay injected at each hand-over must appear in that segment and
//! nowhere else. Times are compared with those of a run without injection, in shares of the delay.

use firstlight_tests::{
    bench,
    chain::{HANDOVERS, Owner, SEGMENTS, median, number},
    pair::{Pair, Plan},
};
use serde_json::Value;

const INJECTED_MS: f64 = 40.0;
/// How much later than asked a busy machine may wake a sleeper, and how much other segments may change.
const TOLERANCE: f64 = 0.25;
/// One request at a time, so that the delay of one makes no other wait.
const LOAD: &[&str] = &[
    "--no-self-check",
    "--num-requests",
    "24",
    "--submit-interval-ms",
    "100",
    "--max-new-tokens",
    "2",
    "--unique-prompts",
    "--require-closed",
];

#[tokio::test]
async fn an_injected_delay_appears_in_its_segment_and_nowhere_else() {
    let without = bench::run(&Pair::sim().start().await, LOAD).await;
    println!("{INJECTED_MS} ms injected at each hand-over; change of each segment's median, ms");
    println!("{:12} {}", "injected at", SEGMENTS.map(|s| format!("{s:>11}")).concat());
    let mut wrong = Vec::new();
    for (handover, owner) in HANDOVERS {
        let with = run_with_delay(handover, owner).await;
        let changes = SEGMENTS.map(|segment| median(&with, segment) - median(&without, segment));
        println!("{handover:12} {}", changes.map(|ms| format!("{ms:11.2}")).concat());
        for (segment, change) in SEGMENTS.into_iter().zip(changes) {
            let expected = if segment == handover { INJECTED_MS } else { 0.0 };
            if (change - expected).abs() > TOLERANCE * INJECTED_MS {
                wrong.push(format!("injected at {handover}: {segment} changed by {change:.2} ms"));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

async fn run_with_delay(handover: &str, owner: Owner) -> Value {
    let delay = ["--inject-delay", &format!("{handover}={INJECTED_MS}")].map(str::to_owned);
    let delay: Vec<&str> = delay.iter().map(String::as_str).collect();
    let plan: Plan = Pair::sim();
    match owner {
        Owner::Client => bench::run(&plan.start().await, &[LOAD, &delay].concat()).await,
        Owner::Scheduler => bench::run(&plan.scheduler(&delay).start().await, LOAD).await,
        Owner::Engine => bench::run(&plan.engine(&delay).start().await, LOAD).await,
    }
}

#[tokio::test]
async fn results_have_every_field_and_their_parts_add_up() {
    let pair = Pair::sim().start().await;
    let flags = ["--num-requests", "64", "--max-new-tokens", "8", "--prefill-max-batch-size", "8"];
    let run = bench::run(&pair, &[&flags[..], &["--unique-prompts", "--require-closed"]].concat()).await;

    assert_eq!((number(&run, "/requests/completed"), number(&run, "/requests/failed")), (64.0, 0.0));
    assert!(run["requests"]["failed_by_kind"].is_object());
    for distribution in ["ttft", "tpot", "itl", "latency", "queue_wait_total"] {
        let points = ["p50_ms", "p95_ms", "p99_ms"].map(|p| number(&run, &format!("/{distribution}/{p}")));
        assert!(points.is_sorted(), "{distribution}: {points:?}");
        number(&run, &format!("/{distribution}/mean_ms"));
    }
    number(&run, "/throughput/output_tokens_per_s");
    number(&run, "/throughput/requests_per_s");
    for segment in SEGMENTS {
        for field in ["mean_ms", "p50_ms", "p95_ms", "p99_ms", "bound_ms", "negative", "unresolved"] {
            let value = &run["segments"][segment][field];
            assert!(value.is_number() || value.is_null(), "{segment}.{field}: {value}");
        }
        assert!(run["slowest_1pct"]["segments"].get(segment).is_some(), "{segment}");
    }
    assert_eq!(number(&run, "/slowest_1pct/n"), 5.0, "1 % of 64 is less than the least, 5");
    for clock in ["/clock/scheduler", "/clock/engine"] {
        assert_eq!(number(&run, &format!("{clock}/offset_ms")), 0.0, "one machine, one clock");
        number(&run, &format!("{clock}/bound_ms"));
    }
    number(&run, "/clock/loop_residual_ms");
    assert!(["VALID", "INVALID"].contains(&run["validity"]["verdict"].as_str().unwrap()));
    assert!(run["validity"]["reasons"].is_array());

    let parts: f64 = SEGMENTS.iter().filter_map(|s| run["segments"][s]["share_ms"].as_f64()).sum();
    let whole = number(&run, "/ttft/mean_ms");
    close(parts + number(&run, "/unexplained/mean_ms"), whole, "segments and TTFT");
    assert!(number(&run, "/unexplained/percent_of_ttft").abs() <= 0.1);
    let causes: f64 =
        run["queue_wait_by_cause"].as_object().unwrap().values().filter_map(Value::as_f64).sum();
    close(causes, number(&run, "/queue_wait_total/mean_ms"), "causes and queue wait");
    let slowest: f64 =
        run["slowest_1pct"]["segments"].as_object().unwrap().values().filter_map(Value::as_f64).sum();
    close(slowest, number(&run, "/slowest_1pct/ttft_mean_ms"), "segments and TTFT of the slowest");
}

fn close(parts: f64, whole: f64, what: &str) {
    assert!((parts - whole).abs() <= 1e-6 * whole.abs(), "{what}: {parts} and {whole}");
}
