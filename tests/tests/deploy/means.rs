//! What Prometheus shows is what the requests say of themselves.

use std::{
    io::Write as _,
    process::{Command, Stdio},
};

use firstlight_proto::v1::Timeline;
use firstlight_tests::{client::ids_request, pair::Pair, scrape::Page, wait};

use crate::{prometheus::Prometheus, support::tool};

const REQUESTS: u32 = 200;

#[tokio::test]
async fn scraped_means_are_the_means_of_the_requests_own_timelines() {
    let pair = Pair::sim().scheduler(&["--max-active-requests", "16", "--slo-ttft", "60"]).start().await;
    let prometheus = Prometheus::scrape(&pair).await;
    let client = pair.client().await;
    let requests = (0..REQUESTS).map(|id| {
        let client = client.clone();
        let prompt: Vec<u32> = (0..4 + id % 60).map(|token| 10 + token).collect();
        tokio::spawn(async move { client.generate(ids_request(&prompt, 4 + id % 8)).await.unwrap() })
    });
    let mut timelines = Vec::new();
    for request in requests.collect::<Vec<_>>() {
        timelines.push(request.await.unwrap().finished.unwrap().timeline.expect("a timeline"));
    }
    let all_seen = format!("sum(firstlight_ttft_seconds_count) == {REQUESTS}");
    wait::until("all requests scraped", || prometheus.value(&all_seen)).await;

    let segment = |metric: &str, segment: &str| {
        format!("sum({metric}_sum{{segment=\"{segment}\"}}) / sum({metric}_count{{segment=\"{segment}\"}})")
    };
    let (ttft, engine) = ("firstlight_ttft_segment_seconds", "firstlight_engine_segment_seconds");
    for (name, query, own) in [
        (
            "TTFT",
            "sum(firstlight_ttft_seconds_sum) / sum(firstlight_ttft_seconds_count)".to_owned(),
            server_ttft as Own,
        ),
        ("accept", segment(ttft, "accept"), |t| at(t).queued_ns - at(t).received_ns),
        ("queue_wait", segment(ttft, "queue_wait"), |t| at(t).queue_wait_ns),
        ("prefill", segment(ttft, "prefill"), prefill),
        ("prefill, by the engine", segment(engine, "prefill"), prefill),
        ("engine_wait", segment(engine, "engine_wait"), |t| {
            let engine = t.engine.as_ref().unwrap();
            engine.admit_ns - engine.received_ns
        }),
    ] {
        let scraped = prometheus.value(&query).await.unwrap_or_else(|| panic!("{name}: no data for {query}"));
        let own =
            timelines.iter().map(|timeline| own(timeline) as f64 / 1e9).sum::<f64>() / f64::from(REQUESTS);
        println!("{name:<24} {:>10.4} ms scraped  {:>10.4} ms by the requests", scraped * 1e3, own * 1e3);
        assert!((scraped - own).abs() <= 0.01 * own, "{name}: {scraped} scraped, {own} by the requests");
    }
}

#[tokio::test]
async fn both_pages_are_as_prometheus_likes_them() {
    let pair = Pair::sim().start().await;
    pair.client().await.generate(ids_request(&[1, 2, 3], 4)).await.unwrap();
    for address in [&pair.scheduler_metrics, &pair.engine_metrics[0]] {
        let answer = Page::of(address).await;
        let page = answer.text();
        let mut check = Command::new(tool("promtool").get_program());
        let mut check = check
            .args(["check", "metrics"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        check.stdin.take().unwrap().write_all(page.as_bytes()).unwrap();
        let output = check.wait_with_output().unwrap();
        let said =
            format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success() && said.is_empty(), "{address}: {said}");
        assert!(page.contains("# TYPE firstlight"), "{page}");
    }
}

/// One number of a timeline, ns.
type Own = fn(&Timeline) -> i64;

fn at(timeline: &Timeline) -> &firstlight_proto::v1::SchedulerTimeline {
    timeline.scheduler.as_ref().expect("the scheduler's stamps")
}

fn server_ttft(timeline: &Timeline) -> i64 {
    at(timeline).first_token_ns - at(timeline).received_ns
}

fn prefill(timeline: &Timeline) -> i64 {
    let engine = timeline.engine.as_ref().expect("the engine's stamps");
    engine.first_token_ns - engine.admit_ns
}
