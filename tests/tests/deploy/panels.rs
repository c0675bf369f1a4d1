//! Every panel's query against a real Prometheus that scrapes the pair under load.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use firstlight_tests::{
    client::{Client, ids_request},
    pair::Pair,
    wait,
};

use crate::{monitoring::panel_queries, prometheus::Prometheus};

/// What Grafana would put for `$__rate_interval` at this scrape interval, and then some.
const RATE_INTERVAL: &str = "20s";

#[tokio::test]
async fn every_panel_shows_plausible_data_under_load() {
    // Small limits, so that every cause has something to say; an objective that some meet and some miss.
    let mut pair = Pair::sim()
        .engines(2)
        .engine(&["--kv-tokens", "2048"])
        .scheduler(&["--max-active-requests", "16", "--prefill-max-batch-size", "2", "--slo-ttft", "180"])
        .start()
        .await;
    let prometheus = Prometheus::scrape(&pair).await;
    let stop = Arc::<AtomicBool>::default();
    let load = tokio::spawn(make_load(pair.client().await, stop.clone()));

    let served = "sum(firstlight_requests_finished_total) > 200";
    wait::until("requests served", || prometheus.value(served)).await;
    pair.engines[1].kill();
    pair.engines[1].restart();
    wait::until("a loss scraped", || prometheus.value("sum(firstlight_link_losses_total) > 0")).await;
    wait::until("both engines back", || {
        prometheus.value("min_over_time(firstlight_engines_attached[5s]) == 2")
    })
    .await;

    let mut faults = Vec::new();
    println!("{:<55} {:>14}  query", "panel", "value");
    for (place, query) in panel_queries() {
        let query = query.replace("$__rate_interval", RATE_INTERVAL).replace("$instance", ".*");
        let values = prometheus.values(&query).await;
        let shown = values.iter().copied().find(|value| value.is_finite());
        println!("{place:<55} {:>14}  {query}", shown.map_or("-".into(), |value| format!("{value:.6}")));
        let near_zero = place.ends_with("Residual");
        if shown.is_none() || values.iter().any(|v| v.is_infinite() || (*v < 0.0 && !near_zero)) {
            faults.push(format!("{place}: {values:?}\n    {query}"));
        }
    }
    assert!(faults.is_empty(), "panels without plausible data:\n{}", faults.join("\n"));

    // The stack is as high as the mean it claims to split.
    let sum = |metric: &str| format!("sum(rate({metric}_sum[{RATE_INTERVAL}]))");
    let residual =
        format!("1 - {} / {}", sum("firstlight_ttft_segment_seconds"), sum("firstlight_ttft_seconds"));
    let residual = prometheus.value(&residual).await.expect("a residual");
    assert!(residual.abs() < 0.001, "segments leave {residual} of TTFT over");

    stop.store(true, Ordering::Relaxed);
    assert!(load.await.unwrap() > 200);
}

/// Thirty-two clients with prompts of many lengths, one request after the other; how many were served.
async fn make_load(client: Client, stop: Arc<AtomicBool>) -> usize {
    let clients = (0..32_u32).map(|id| {
        let (client, stop) = (client.clone(), stop.clone());
        tokio::spawn(async move {
            let mut served = 0;
            while !stop.load(Ordering::Relaxed) {
                let prompt: Vec<u32> = (0..4 + (id * 7 + served as u32 * 13) % 90).map(|t| 10 + t).collect();
                served += usize::from(client.generate(ids_request(&prompt, 8 + id)).await.is_ok());
            }
            served
        })
    });
    let mut served = 0;
    for client in clients.collect::<Vec<_>>() {
        served += client.await.unwrap();
    }
    served
}
