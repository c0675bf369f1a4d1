//! A delay injected at a hand-over appears in that segment and nowhere else.

use crate::harness::{Engine, Output, Scheduler, ask, forwards_of};

const DELAY_NS: i64 = 600_000_000;

/// The segments between stamps 2 and 8 of one request; all processes here share a clock.
fn segments(output: &Output) -> Vec<(&'static str, i64)> {
    let (scheduler, engine) = (output.scheduler(), output.engine());
    vec![
        ("accept", scheduler.queued_ns - scheduler.received_ns),
        ("queue_wait", scheduler.queue_wait_ns),
        ("dispatch", engine.received_ns - scheduler.admit_ns),
        ("engine_wait", engine.admit_ns - engine.received_ns),
        ("prefill", engine.first_token_ns - engine.admit_ns),
        ("return", scheduler.first_token_ns - engine.first_token_ns),
    ]
}

#[tokio::test]
async fn an_injected_delay_appears_in_its_segment_and_nowhere_else() {
    for injected in ["accept", "queue_wait", "dispatch", "return"] {
        let engine = Engine::start("e", forwards_of(1.0)).await;
        let delay = format!("{injected}={}", DELAY_NS / 1_000_000);
        let scheduler = Scheduler::start(&[engine.addr], &["--inject-delay", &delay]).await;
        let output = scheduler.complete(ask(2, 1)).await.unwrap();
        let segments = segments(&output);
        for (segment, ns) in &segments {
            assert_eq!(*ns >= DELAY_NS, *segment == injected, "{injected} injected: {segments:?}");
        }
    }
}
