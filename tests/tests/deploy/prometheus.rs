//! A real Prometheus that scrapes a pair.

use std::{
    fs,
    path::PathBuf,
    process::{Child, Command, Stdio},
};

use firstlight_tests::{assets, pair::Pair, service::free_address, wait};
use serde_json::Value;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

use crate::support::{at, deploy, items, text, tool};

/// A Prometheus of this test's own, on loopback, its data in a scratch folder.
pub struct Prometheus {
    child: Child,
    address: String,
    folder: PathBuf,
}

impl Prometheus {
    /// Starts it under our rules and waits until it has scraped all of `pair`.
    pub async fn scrape(pair: &Pair) -> Self {
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
        let everything_up = format!("sum(up) == {}", 1 + pair.engines.len());
        wait::until("targets scraped", || prometheus.value(&everything_up)).await;
        prometheus
    }

    /// The first value of an instant query; `None` when it is empty.
    pub async fn value(&self, query: &str) -> Option<f64> {
        self.values(query).await.first().copied()
    }

    /// All values of an instant query.
    pub async fn values(&self, query: &str) -> Vec<f64> {
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
