//! Every panel's query against a real Prometheus that scrapes the pair under load.

use std::{
    fs,
    path::PathBuf,
    process::{Child, Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use firstlight_tests::{
    assets,
    client::{Client, ids_request},
    pair::Pair,
    service::free_address,
    wait,
};
use serde_json::Value;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

use crate::{
    monitoring::panel_queries,
    support::{at, deploy, items, text, tool},
};

/// What Grafana would put for `$__rate_interval` at this scrape interval, and then some.
const RATE_INTERVAL: &str = "20s";

#[tokio::test]
async fn every_panel_shows_plausible_data_under_load() {
    // Small limits, so that every cause has something to say; an objective that some meet and some miss.
    let mut pair = Pair::sim()
        .engines(2)
        .engine(&["--kv-tokens", "2048"])
        .scheduler(&["--max-active-requests", "16", "--prefill-max-batch-size", "2", "--slo-ttft", "60"])
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

/// A Prometheus of this test's own, on loopback, its data in a scratch folder.
struct Prometheus {
    child: Child,
    address: String,
    folder: PathBuf,
}

impl Prometheus {
    async fn scrape(pair: &Pair) -> Self {
        let folder = assets::scratch_folder();
        let (address, engines) = (free_address(), pair.engine_metrics.join("\", \""));
        let config = format!(
            "global: {{scrape_interval: 1s, evaluation_interval: 1s}}\n\
             rule_files: [\"{}/*.yaml\"]\n\
             scrape_configs:\n\
             - {{job_name: firstlight-scheduler, static_configs: [{{targets: [\"{}\"]}}]}}\n\
             - {{job_name: firstlight-engine, static_configs: [{{targets: [\"{engines}\"]}}]}}\n",
            deploy("prometheus/rules").display(),
            pair.scheduler_metrics,
        );
        fs::write(folder.join("prometheus.yaml"), config).unwrap();
        let log = fs::File::create(folder.join("prometheus.log")).unwrap();
        let child = Command::new(tool("prometheus").get_program())
            .arg(format!("--config.file={}", folder.join("prometheus.yaml").display()))
            .arg(format!("--storage.tsdb.path={}", folder.join("data").display()))
            .arg(format!("--web.listen-address={address}"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        let prometheus = Self { child, address, folder };
        wait::until("targets scraped", || prometheus.value("sum(up) == 3")).await;
        prometheus
    }

    /// The first value of an instant query; `None` when it is empty.
    async fn value(&self, query: &str) -> Option<f64> {
        self.values(query).await.first().copied()
    }

    async fn values(&self, query: &str) -> Vec<f64> {
        let Some(answer) = self.ask(query).await else { return Vec::new() };
        assert_eq!(at(&answer, "/status"), "success", "{query}: {answer:#}");
        items(at(&answer, "/data/result")).map(|series| text(series, "/value/1").parse().unwrap()).collect()
    }

    /// `None` while nothing listens.
    async fn ask(&self, query: &str) -> Option<Value> {
        let mut stream = TcpStream::connect(&self.address).await.ok()?;
        let encoded: String = query.bytes().map(|byte| format!("%{byte:02X}")).collect();
        // HTTP/1.0: the answer comes in one piece and the connection ends after it.
        let request = format!("GET /api/v1/query?query={encoded} HTTP/1.0\r\n\r\n");
        stream.write_all(request.as_bytes()).await.ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.ok()?;
        serde_json::from_str(answer.split_once("\r\n\r\n")?.1).ok()
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.folder);
    }
}
