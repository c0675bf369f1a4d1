//! The program itself: flags, signals, `/metrics`, health.

use std::{
    io::{BufReader, Read as _},
    process::{Child, Command, Stdio},
};

use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::harness::{Scheduler, sequence};

/// A running `engine-svc --backend sim` on free ports; killed when dropped.
struct Program {
    child: Child,
    log: BufReader<std::process::ChildStderr>,
    listen: String,
    metrics: String,
}

impl Program {
    fn start(flags: &[&str]) -> Self {
        let mut command = engine();
        command.args(["--backend", "sim", "--listen", "127.0.0.1:0", "--metrics-listen", "127.0.0.1:0"]);
        let mut child = command.args(flags).stderr(Stdio::piped()).spawn().unwrap();
        let mut log = BufReader::new(child.stderr.take().unwrap());
        let ready = line_with(&mut log, "\"ready\"");
        let field = |name: &str| {
            let (_, rest) = ready.split_once(&format!("\"{name}\":\"")).unwrap();
            rest.split_once('"').unwrap().0.to_owned()
        };
        Self { child, log, listen: field("listen"), metrics: field("metrics") }
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    async fn attach(&self) -> Scheduler {
        Scheduler::attach_at(&format!("http://{}", self.listen)).await
    }

    async fn scrape(&self) -> String {
        let mut stream = tokio::net::TcpStream::connect(&self.metrics).await.unwrap();
        stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: e\r\nConnection: close\r\n\r\n").await.unwrap();
        let mut page = String::new();
        stream.read_to_string(&mut page).await.unwrap();
        page
    }

    fn ended(&mut self) -> (Option<i32>, String) {
        let status = self.child.wait().unwrap();
        let mut rest = String::new();
        self.log.read_to_string(&mut rest).unwrap();
        (status.code(), rest)
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn engine() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_engine-svc"));
    command.env_remove("FIRSTLIGHT_MODEL").stdin(Stdio::null());
    command
}

fn line_with(log: &mut impl std::io::BufRead, text: &str) -> String {
    let mut line = String::new();
    while !line.contains(text) {
        line.clear();
        assert_ne!(log.read_line(&mut line).unwrap(), 0, "the log ended without {text}");
    }
    line
}

#[tokio::test]
async fn sigterm_lets_what_runs_finish_and_ends_the_process_well() {
    let mut program = Program::start(&["--sim-decode-base-us", "10000"]);
    let mut scheduler = program.attach().await;
    scheduler.admit(1, vec![sequence(1, 10, 20)]).await;
    while scheduler.next_step().await.handles.is_empty() {}
    program.signal(Signal::TERM);
    assert_eq!(scheduler.outputs(&[1]).await.0[&1].end, Some(firstlight_proto::v1::RowEnd::Length));
    assert_eq!(program.ended().0, Some(0));
}

#[tokio::test]
async fn a_second_signal_stops_at_once() {
    let mut program = Program::start(&["--drain-seconds", "3600"]);
    let mut scheduler = program.attach().await;
    scheduler.admit(1, vec![sequence(1, 10, 8000)]).await;
    while scheduler.next_step().await.handles.is_empty() {}
    program.signal(Signal::TERM);
    line_with(&mut program.log, "draining");
    program.signal(Signal::TERM);
    assert_eq!(program.ended().0, Some(0));
    while scheduler.next().await.is_ok() {}
}

#[tokio::test]
async fn metrics_count_what_ran_and_the_causes_sum_to_the_wait() {
    let program = Program::start(&["--sim-time-scale", "0.1"]);
    let mut scheduler = program.attach().await;
    let batch = (1..9).map(|handle| sequence(handle, 30, 5)).collect();
    scheduler.admit(1, batch).await;
    scheduler.admit(2, vec![sequence(20, 0, 5)]).await;
    scheduler.outputs(&(1..9).collect::<Vec<_>>()).await;
    let page = program.scrape().await;
    let value = |series: &str| -> f64 {
        let line = page.lines().find(|line| line.starts_with(&format!("{series} ")));
        line.unwrap_or_else(|| panic!("no {series} in\n{page}")).rsplit_once(' ').unwrap().1.parse().unwrap()
    };
    assert_eq!(value("firstlight_engine_generated_tokens_total"), 40.0);
    assert_eq!(value("firstlight_engine_prefill_tokens_total"), 240.0);
    assert_eq!(value("firstlight_engine_finished_total{reason=\"length\"}"), 8.0);
    assert_eq!(value("firstlight_engine_rejected_total{kind=\"invalid\"}"), 1.0);
    assert_eq!(value("firstlight_engine_attachments"), 1.0);
    assert_eq!(
        value("firstlight_engine_kv_blocks_free"),
        value("firstlight_engine_kv_blocks"),
        "nothing is left in the pool"
    );
    assert_eq!(value("firstlight_engine_segment_seconds_count{segment=\"engine_wait\"}"), 8.0);
    let segment = value("firstlight_engine_segment_seconds_sum{segment=\"engine_wait\"}");
    let by_cause: f64 = ["engine_busy", "decode_first"]
        .iter()
        .map(|cause| value(&format!("firstlight_engine_wait_seconds_sum{{cause=\"{cause}\"}}")))
        .sum();
    let live: f64 = ["engine_busy", "decode_first"]
        .iter()
        .map(|cause| value(&format!("firstlight_engine_blocked_seconds_total{{cause=\"{cause}\"}}")))
        .sum();
    assert!((segment - by_cause).abs() < 1e-6, "{segment} by cause {by_cause}");
    assert!((segment - live).abs() < 1e-6, "{segment}, live {live}");
    assert!(!page.contains("quantile="), "a histogram became a summary");
}

#[test]
fn healthcheck_tells_a_ready_engine_from_none() {
    let program = Program::start(&[]);
    let check = |addr: &str| {
        let mut command = engine();
        command.args(["healthcheck", addr]).stderr(Stdio::null()).status().unwrap().success()
    };
    assert!(check(&program.listen));
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    assert!(!check(&free.to_string()));
}

#[test]
fn a_wrong_flag_is_named() {
    let fails = |args: &[&str]| {
        let output = engine().args(args).output().unwrap();
        assert!(!output.status.success());
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let sim = ["--backend", "sim", "--listen", "127.0.0.1:0", "--metrics-listen", "127.0.0.1:0"];
    assert!(fails(&[&sim[..], &["--kv-blocks", "0"]].concat()).contains("--kv-tokens"));
    assert!(fails(&[&sim[..], &["--inject-delay", "nowhere=1"]].concat()).contains("engine_wait"));
    assert!(fails(&[&sim[..], &["--drain-seconds=-1"]].concat()).contains("--drain-seconds"));
}
