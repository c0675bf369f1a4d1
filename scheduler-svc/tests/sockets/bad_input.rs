//! Each wrong request is refused with its reason, over a real socket, and the next one is served.

use firstlight_proto::{error::Kind, v1, v1::generate_request::Prompt};
use tonic_types::StatusExt as _;

use crate::harness::{Engine, Scheduler, ask, collect, forwards_of};

fn with(change: impl FnOnce(&mut v1::GenerateRequest)) -> v1::GenerateRequest {
    let mut request = ask(4, 1);
    change(&mut request);
    request
}

fn ids(ids: Vec<u32>) -> Option<Prompt> {
    Some(Prompt::TokenIds(v1::TokenIds { ids }))
}

fn temperature(temperature: f32) -> Option<v1::Sampling> {
    Some(v1::Sampling { temperature, ..Default::default() })
}

#[tokio::test]
async fn every_wrong_request_is_refused_and_the_next_one_served() {
    let engine = Engine::start("e", forwards_of(0.1)).await;
    let scheduler = Scheduler::start(&[engine.addr], &[]).await;
    let five_mb = "word ".repeat(1_000_000);
    let cases = [
        (Kind::Invalid, "text", with(|r| r.prompt = Some(Prompt::Text(String::new())))),
        (Kind::Invalid, "text", with(|r| r.prompt = Some(Prompt::Text(five_mb)))),
        (Kind::Invalid, "prompt", with(|r| r.prompt = None)),
        (Kind::Invalid, "token_ids", with(|r| r.prompt = ids(vec![1, 272]))),
        (Kind::Invalid, "max_new_tokens", with(|r| r.max_new_tokens = 0)),
        (Kind::Invalid, "sampling.temperature", with(|r| r.sampling = temperature(f32::NAN))),
        (Kind::Invalid, "sampling.temperature", with(|r| r.sampling = temperature(-1.0))),
        (Kind::Invalid, "model", with(|r| r.model = "unknown".into())),
        (Kind::NeverFits, "context", with(|r| r.max_new_tokens = 40_000)),
        (Kind::NeverFits, "kv_blocks", with(|r| r.prompt = ids(vec![1; 66_000]))),
    ];
    for (kind, names, request) in cases {
        let status = scheduler.complete(request).await.unwrap_err();
        assert_eq!(Kind::of(&status), kind, "{names}: {status:?}");
        assert!(status.message().contains(names), "{names}: {status:?}");
        assert_eq!(scheduler.complete(ask(2, 1)).await.unwrap().ids.len(), 2, "after {names}");
    }
}

#[tokio::test]
async fn a_refused_request_without_an_id_is_told_the_one_it_got() {
    let engine = Engine::start("e", forwards_of(0.1)).await;
    let scheduler = Scheduler::start(&[engine.addr], &[]).await;
    for request in [with(|r| r.max_new_tokens = 0), with(|r| r.max_new_tokens = 40_000)] {
        let status = scheduler.complete(request).await.unwrap_err();
        assert_eq!(status.metadata().get("x-request-id").expect("an id").len(), 36, "a UUID");
    }
}

#[tokio::test]
async fn input_of_any_length_is_refused_without_harm_to_a_stream_on_the_same_connection() {
    let engine = Engine::start("e", forwards_of(2.0)).await;
    let scheduler = Scheduler::start(&[engine.addr], &[]).await;
    let stream = scheduler.client().generate(ask(300, 1)).await.unwrap().into_inner();
    for long in ["x".repeat(200_000), "ä".repeat(100_000)] {
        let cases = [
            ("model", with(|r| r.model = long.clone())),
            ("request_id", with(|r| r.request_id = long.clone())),
            ("run_label", with(|r| r.run_label = long.clone())),
        ];
        for (names, request) in cases {
            let status = scheduler.complete(request).await.unwrap_err();
            assert_eq!(Kind::of(&status), Kind::Invalid, "{names}: {status:?}");
            assert!(status.message().contains(names), "{names}: {status:?}");
        }
    }
    assert_eq!(collect(stream).await.unwrap().ids.len(), 300);
}

#[tokio::test]
async fn operators_too_are_told_of_long_input_what_fits_into_headers() {
    let engine = Engine::start("e", forwards_of(0.1)).await;
    let scheduler = Scheduler::start(&[engine.addr], &[]).await;
    let mut admin = scheduler.admin().await;
    let long = || "x".repeat(200_000);
    let policy = Some(v1::Budget { policy: Some(long()), ..Default::default() });
    let lease = |lease_id, holder| v1::LeaseBudgetRequest { ttl_ms: 60_000, lease_id, holder, change: None };
    let refused = [
        admin.set_budget(v1::SetBudgetRequest { change: policy }).await.map(drop),
        admin.lease_budget(lease(long(), String::new())).await.map(drop),
        admin.release_budget(v1::ReleaseBudgetRequest { lease_id: long() }).await.map(drop),
        admin.explain(v1::ExplainRequest { request_id: long() }).await.map(drop),
    ];
    for status in refused.map(Result::unwrap_err) {
        assert!(status.message().contains("xxx\"… (200000 bytes)"), "{status:?}");
    }
    admin.lease_budget(lease(String::new(), long())).await.unwrap();
    let status = admin.lease_budget(lease(String::new(), String::new())).await.unwrap_err();
    assert!(status.message().contains("xxx\"… (200000 bytes)"), "{status:?}");
}

#[tokio::test]
async fn an_id_in_flight_is_refused_and_free_again_afterwards() {
    let engine = Engine::start("e", forwards_of(1.0)).await;
    let scheduler = Scheduler::start(&[engine.addr], &[]).await;
    let named = |n| v1::GenerateRequest { request_id: "same".into(), ..ask(n, 1) };
    let first = scheduler.client().generate(named(3_000)).await.unwrap();
    let status = scheduler.complete(named(1)).await.unwrap_err();
    assert!(status.message().contains("same"), "{status:?}");
    assert_eq!(status.metadata().get("x-request-id").unwrap(), "same");
    assert_eq!(Kind::of(&status), Kind::Invalid);
    drop(first);
    crate::harness::until("the id is free again", async || scheduler.complete(named(1)).await.ok()).await;
}

#[tokio::test]
async fn a_full_queue_says_when_to_come_back() {
    let engine = Engine::start("e", forwards_of(5.0)).await;
    let flags = ["--max-active-requests", "1", "--max-pending", "1"];
    let scheduler = Scheduler::start(&[engine.addr], &flags).await;
    let _active = scheduler.client().generate(ask(3_000, 1)).await.unwrap();
    let _pending = scheduler.client().generate(ask(1, 2)).await.unwrap();
    // Each message is a pass of the core's owner, and none but a refusal may give a place in the drain away.
    for _ in 0..1_000 {
        scheduler.in_flight().await;
    }
    let status = scheduler.complete(ask(1, 3)).await.unwrap_err();
    assert_eq!(Kind::of(&status), Kind::Full);
    let delay = status.get_error_details().retry_info().unwrap().retry_delay.unwrap();
    let gauges = scheduler.running.dispatcher.with(|dispatch| dispatch.dump().gauges).await.unwrap();
    assert!(
        delay.as_secs_f64() <= 2.0 / gauges.drain_per_s,
        "{delay:?} at {} per second",
        gauges.drain_per_s
    );
}
