//! Requests that end early free what they hold, and nobody else notices.

use std::time::Duration;

use firstlight_proto::error::Kind;
use tonic::{Request, transport::Endpoint};

use crate::harness::{Engine, Scheduler, ask, collect, forwards_of, until};

#[tokio::test]
async fn a_client_that_hangs_up_frees_its_blocks_and_nobody_else_notices() {
    let engine = Engine::start("e", forwards_of(2.0)).await;
    let scheduler = Scheduler::start(&[engine.addr], &[]).await;
    let alone = scheduler.complete(ask(40, 7)).await.unwrap();
    let mut leaves = scheduler.client().generate(ask(10_000, 1)).await.unwrap().into_inner();
    let stays = scheduler.client().generate(ask(40, 7)).await.unwrap().into_inner();
    leaves.message().await.unwrap();
    drop(leaves);
    assert_eq!(collect(stays).await.unwrap().ids, alone.ids);
    engine.comes_to_rest().await;
    assert_eq!(scheduler.in_flight().await, 0);
}

#[tokio::test]
async fn a_client_that_hangs_up_while_pending_leaves_the_queue() {
    let engine = Engine::start("e", forwards_of(2.0)).await;
    let scheduler = Scheduler::start(&[engine.addr], &["--max-active-requests", "1"]).await;
    let active = scheduler.client().generate(ask(10_000, 1)).await.unwrap();
    let pending = scheduler.client().generate(ask(1, 2)).await.unwrap();
    assert_eq!(scheduler.in_flight().await, 2);
    drop(pending);
    until("it leaves the queue", async || (scheduler.in_flight().await == 1).then_some(())).await;
    drop(active);
    engine.comes_to_rest().await;
}

#[tokio::test]
async fn a_passed_deadline_frees_blocks_and_tells_the_wait_by_cause() {
    let engine = Engine::start("e", forwards_of(5.0)).await;
    let scheduler = Scheduler::start(&[engine.addr], &["--max-active-requests", "1"]).await;
    // The timeout travels as metadata only, so that the answer is the scheduler's and not this client's.
    let with_timeout = |n, seed, timeout: &str| {
        let mut request = Request::new(ask(n, seed));
        request.metadata_mut().insert("grpc-timeout", timeout.parse().unwrap());
        request
    };
    // The first ends well after the second's time is over, so that it never makes room for it.
    let active = scheduler.client().generate(with_timeout(10_000, 1, "1500m")).await.unwrap();
    let pending = scheduler.client().generate(with_timeout(1, 2, "300m")).await.unwrap();
    let (active, pending) = tokio::join!(collect(active.into_inner()), collect(pending.into_inner()));
    let (active, pending) = (active.unwrap_err(), pending.unwrap_err());
    assert_eq!((Kind::of(&active), Kind::of(&pending)), (Kind::Deadline, Kind::Deadline));
    assert!(active.message().contains("of 10000 tokens generated"), "{active:?}");
    assert!(pending.message().contains("max_active"), "{pending:?}");
    engine.comes_to_rest().await;
}

#[tokio::test]
async fn a_client_that_never_reads_loses_only_its_own_request() {
    let engine = Engine::start("e", forwards_of(0.0)).await;
    // Whoever asks for fewer tokens than the buffer holds cannot overflow it, however slow the machine.
    let scheduler = Scheduler::start(&[engine.addr], &["--stream-buffer", "256"]).await;
    // A small window: what the client does not read stays with the scheduler, however many tokens a message takes.
    let endpoint = Endpoint::from_shared(format!("http://{}", scheduler.running.addr)).unwrap();
    let other = endpoint.initial_stream_window_size(1_024).connect().await.unwrap();
    let mut deaf = firstlight_proto::v1::inference_client::InferenceClient::new(other);
    let unread = deaf.generate(ask(30_000, 1)).await.unwrap().into_inner();
    let reads = scheduler.complete(ask(200, 2)).await.unwrap();
    assert_eq!(reads.ids.len(), 200);
    until("the unread stream is given up", async || (scheduler.in_flight().await == 0).then_some(())).await;
    engine.comes_to_rest().await;
    let status = collect(unread).await.unwrap_err();
    assert_eq!(Kind::of(&status), Kind::Full, "{status:?}");
}

#[tokio::test]
async fn a_burst_of_cancels_leaves_nothing_behind() {
    let engine = Engine::start("e", forwards_of(1.0)).await;
    let scheduler = Scheduler::start(&[engine.addr], &["--max-active-requests", "20"]).await;
    let mut streams = Vec::new();
    for seed in 0..60 {
        streams.push(scheduler.client().generate(ask(2_000, seed)).await.unwrap());
    }
    tokio::time::sleep(Duration::from_millis(20)).await;
    drop(streams);
    until("all have left", async || (scheduler.in_flight().await == 0).then_some(())).await;
    engine.comes_to_rest().await;
    until("the core is empty", async || (scheduler.active().await == 0).then_some(())).await;
    assert_eq!(scheduler.complete(ask(3, 1)).await.unwrap().ids.len(), 3);
}
