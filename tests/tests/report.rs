//! The HTML report in a real browser: it renders without a complaint, and shows the numbers of the JSON.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use firstlight_tests::{assets, bench, pair::Pair};
use serde_json::Value;

#[tokio::test]
#[ignore = "needs a browser: make test-long"]
async fn the_report_renders_without_a_complaint_and_shows_the_numbers_of_the_json() {
    let folder = assets::scratch_folder();
    let pair = Pair::sim().start().await;
    let file = |name: &str| folder.join(name);
    let (json, lines) = (file("run.json"), file("run.jsonl"));
    let pages = [file("direct.html"), file("report.html")];
    let load = ["--num-requests", "120", "--request-rate", "60", "--unique-prompts", "--max-new-tokens", "8"];
    let mut run = bench::against(&pair, "run", &load);
    run.args(["--max-active-requests", "2", "--slo", "ttft=100ms"]);
    run.arg("--json-out").arg(&json).arg("--jsonl-out").arg(&lines).arg("--html-out").arg(&pages[0]);
    succeed(run).await;
    let mut report = bench::command("report");
    report.arg(&json).arg("--jsonl").arg(&lines).arg("-o").arg(&pages[1]);
    succeed(report).await;
    let json: Value = serde_json::from_slice(&fs::read(json).unwrap()).unwrap();
    for page in &pages {
        let dom = Dom(rendered(page));
        shows_the_numbers(&dom, &json);
        assert_eq!(dom.0.matches("<svg").count(), 4, "chain, timeline, distributions, causes");
        assert_eq!(dom.0.matches("<details").count(), 4, "a table behind every picture");
    }
    let picture = file("report.png");
    browser(&pages[1], &[&format!("--screenshot={}", text(&picture)), "--window-size=390,4000"]);
    assert!(fs::metadata(&picture).unwrap().len() > 20_000, "the screenshot is blank");
    fs::remove_dir_all(folder).unwrap();
}

#[tokio::test]
#[ignore = "needs a browser: make test-long"]
async fn the_page_of_a_sweep_renders_without_a_complaint() {
    let folder = assets::scratch_folder();
    let pair = Pair::sim().start().await;
    let (out, page) = (folder.join("sweep.jsonl"), folder.join("sweep.html"));
    let load = ["--num-requests", "20", "--max-new-tokens", "4", "--warmup-runs", "0", "--no-self-check"];
    let files = ["--vary", "max-concurrency=1,2,4", "--out", text(&out), "--html-out", text(&page)];
    succeed(bench::against(&pair, "sweep", &[&load[..], &files].concat())).await;
    let dom = Dom(rendered(&page));
    assert_eq!(dom.0.matches("<svg").count(), 2, "goodput and TTFT");
    assert_eq!(dom.rows().filter(|row| row.len() > 8).count(), 3, "a row per point");
    fs::remove_dir_all(folder).unwrap();
}

fn shows_the_numbers(dom: &Dom, json: &Value) {
    for (name, field) in
        [("TTFT", "ttft"), ("Queue wait", "queue_wait_total"), ("TPOT", "tpot"), ("Latency", "latency")]
    {
        let times = &json[field];
        let figures = ["mean_ms", "p50_ms", "p95_ms", "p99_ms"].map(|p| two_decimals(&times[p]));
        dom.has_row(name, |cells| cells[..4] == figures, &format!("{figures:?}"));
    }
    for (name, segment) in json["segments"].as_object().unwrap() {
        let (mean, slowest) = (&segment["share_ms"], &json["slowest_1pct"]["segments"][name]);
        let (mean, slowest) = (two_decimals(mean), two_decimals(slowest));
        dom.has_row(
            name,
            |cells| cells[0] == mean && cells[2] == slowest,
            &format!("{mean}, slowest {slowest}"),
        );
    }
    for (name, ms) in json["queue_wait_by_cause"].as_object().unwrap() {
        let ms = two_decimals(ms);
        dom.has_row(&format!("wait for {name}"), |cells| cells[0] == ms, &ms);
    }
    for (name, value) in json["run"]["budget"].as_object().unwrap() {
        let value = value.as_str().unwrap();
        dom.has_row(name, |cells| cells[0] == value, value);
    }
    let verdict = json["validity"]["verdict"].as_str().unwrap();
    let rate = two_decimals(&json["throughput"]["output_tokens_per_s"]);
    let met = two_decimals(&json["goodput"]["requests_per_s"]);
    for said in [
        format!(">{verdict}</span>"),
        format!(">{rate} <small>tokens/s"),
        format!(">{met} <small>requests/s"),
    ] {
        assert!(dom.0.contains(&said), "the page does not show {said}");
    }
}

async fn succeed(mut command: tokio::process::Command) {
    let ended = command.output().await.unwrap();
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
}

/// The page as the browser holds it.
struct Dom(String);

impl Dom {
    /// Rows of all tables: their cells.
    fn rows(&self) -> impl Iterator<Item = Vec<&str>> {
        self.0.split("<tr>").skip(1).map(|row| {
            let row = row.split("</tr>").next().unwrap_or_default();
            row.split("<td>").skip(1).filter_map(|cell| cell.split("</td>").next()).collect()
        })
    }

    fn has_row(&self, name: &str, wanted: impl Fn(&[&str]) -> bool, words: &str) {
        let name = name.replace('>', "&gt;");
        let mut of_name = self.rows().filter(|row| row.first().is_some_and(|first| *first == name));
        assert!(of_name.any(|row| wanted(&row[1..])), "no row {name} with {words}");
    }
}

/// Opens `page`; fails when the browser complains. The document after rendering.
fn rendered(page: &Path) -> String {
    let opened = browser(page, &["--dump-dom"]);
    let dom = String::from_utf8(opened.stdout).unwrap();
    let said = String::from_utf8_lossy(&opened.stderr);
    let complaints: Vec<_> = said.lines().filter(|line| line.contains("CONSOLE")).collect();
    assert!(complaints.is_empty() && dom.contains("</section>"), "{complaints:#?}\n{said}");
    dom
}

fn browser(page: &Path, flags: &[&str]) -> Output {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scripts/browser.sh");
    let found = Command::new(script).output().unwrap();
    assert!(found.status.success(), "{}", String::from_utf8_lossy(&found.stderr));
    let program = PathBuf::from(String::from_utf8(found.stdout).unwrap().trim());
    let mut command = Command::new(program);
    // Pages of our own making; the sandbox needs rights that a container does not have.
    command.args([
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--enable-logging=stderr",
        "--timeout=20000",
    ]);
    let opened = command.args(flags).arg(format!("file://{}", text(page))).output().unwrap();
    assert!(opened.status.success(), "{}", String::from_utf8_lossy(&opened.stderr));
    opened
}

fn two_decimals(number: &Value) -> String {
    number.as_f64().map_or("–".to_owned(), |x| format!("{x:.2}"))
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a path in UTF-8")
}
