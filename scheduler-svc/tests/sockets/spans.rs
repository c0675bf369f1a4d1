//! Spans as they are watched: the scheduler's own, and the engines' relayed.

use std::collections::BTreeSet;

use firstlight_proto::{
    clock::Clock,
    v1::{self, SpanEvent},
};

use crate::harness::{Engine, Scheduler, ask, forwards_of};

#[tokio::test]
async fn a_watcher_sees_both_services_spans_of_its_run() {
    let engine = Engine::start("e", forwards_of(1.0)).await;
    let scheduler = Scheduler::start(&[engine.addr], &[]).await;
    let watch = v1::WatchSpansRequest { run_label: "run".into(), relay_engines: true, ..Default::default() };
    let mut spans = scheduler.telemetry().watch_spans(watch).await.unwrap().into_inner();
    for (id, run) in [("a", "run"), ("b", "other"), ("c", "run")] {
        let request = v1::GenerateRequest { request_id: id.into(), run_label: run.into(), ..ask(3, 1) };
        scheduler.complete(request).await.unwrap();
    }
    let mut seen = BTreeSet::new();
    while seen.len() < 4 {
        let batch = spans.message().await.unwrap().unwrap();
        assert_eq!((batch.name.as_str(), batch.dropped), ("scheduler", 0));
        for span in batch.spans {
            if span.event() == SpanEvent::Finished {
                assert_eq!((span.outcome.as_str(), span.output_tokens), ("length", 3));
            }
            let stamped = span.relayed.expect("what the engine stamped");
            assert!(stamped.received_ns <= stamped.admit_ns && stamped.admit_ns <= stamped.first_token_ns);
            seen.insert((span.request_id, span.event));
        }
    }
    let (first, finished) = (SpanEvent::FirstToken as i32, SpanEvent::Finished as i32);
    let of = |id: &str| [(id.to_owned(), first), (id.to_owned(), finished)];
    assert_eq!(seen, of("a").into_iter().chain(of("c")).collect());
}

#[tokio::test]
async fn a_request_without_a_token_still_has_its_wait_told() {
    let engine = Engine::start("e", forwards_of(5.0)).await;
    let scheduler = Scheduler::start(&[engine.addr], &["--max-active-requests", "1"]).await;
    let mut spans =
        scheduler.telemetry().watch_spans(v1::WatchSpansRequest::default()).await.unwrap().into_inner();
    let _active = scheduler.client().generate(ask(10_000, 1)).await.unwrap();
    let request = v1::GenerateRequest { request_id: "gives-up".into(), ..ask(1, 2) };
    drop(scheduler.client().generate(request).await.unwrap());
    loop {
        let batch = spans.message().await.unwrap().unwrap();
        let Some(span) = batch.spans.into_iter().find(|s| s.request_id == "gives-up") else { continue };
        assert_eq!((span.event(), span.outcome.as_str()), (SpanEvent::Finished, "cancelled"));
        let Some(v1::span::Timeline::Scheduler(timeline)) = span.timeline else { panic!("no timeline") };
        assert_eq!(timeline.first_token_ns, 0);
        assert!(timeline.queue_wait_ns > 0);
        break;
    }
}

#[tokio::test]
async fn a_probe_is_answered_in_this_machines_clock_domain() {
    let engine = Engine::start("e", forwards_of(1.0)).await;
    let scheduler = Scheduler::start(&[engine.addr], &[]).await;
    let answer =
        scheduler.telemetry().probe_clock(v1::ProbeClockRequest { t1_ns: 7 }).await.unwrap().into_inner();
    assert_eq!((answer.t1_ns, answer.name.as_str()), (7, "scheduler"));
    assert!(answer.t2_ns <= answer.t3_ns);
    assert!(answer.domain.unwrap().shares_clock_with(&v1::ClockDomain::of(&Clock::new()).unwrap()));
}
