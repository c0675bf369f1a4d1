//! Ready, stalled, draining, stopped.

use firstlight_proto::{
    error::Kind,
    serve::health::{DRAINING, LIVE, READY},
};
use tonic_health::pb::{
    HealthCheckRequest, health_check_response::ServingStatus, health_client::HealthClient,
};

use crate::harness::{Engine, STUCK, Scheduler, ask, collect, forwards_of, until};

async fn is_serving(scheduler: &Scheduler, service: &str) -> bool {
    let request = HealthCheckRequest { service: service.into() };
    let answer = HealthClient::new(scheduler.channel.clone()).check(request).await.unwrap();
    answer.into_inner().status() == ServingStatus::Serving
}

pub async fn becomes(scheduler: &Scheduler, service: &str, serving: bool) {
    until(service, async || (is_serving(scheduler, service).await == serving).then_some(())).await;
}

#[tokio::test]
async fn it_is_ready_while_an_engine_is_attached_and_live_all_the_time() {
    let engine = Engine::start("e", forwards_of(1.0)).await;
    let scheduler = Scheduler::start(&[engine.addr], &[]).await;
    becomes(&scheduler, READY, true).await;
    drop(engine);
    becomes(&scheduler, READY, false).await;
    assert!(is_serving(&scheduler, LIVE).await);
    assert!(!is_serving(&scheduler, DRAINING).await);
}

#[tokio::test]
async fn draining_finishes_what_runs_and_refuses_what_is_new() {
    let engine = Engine::start("e", forwards_of(2.0)).await;
    let mut scheduler = Scheduler::start(&[engine.addr], &[]).await;
    let running = scheduler.client().generate(ask(100, 1)).await.unwrap().into_inner();
    scheduler.shutdown.drain.cancel();
    becomes(&scheduler, DRAINING, true).await;
    assert!(!is_serving(&scheduler, READY).await);
    let refused = scheduler.complete(ask(1, 2)).await.unwrap_err();
    assert_eq!(Kind::of(&refused), Kind::Unavailable);
    assert_eq!(collect(running).await.unwrap().ids.len(), 100);
    let ended = tokio::time::timeout(STUCK, scheduler.running.wait()).await.expect("it does not end");
    ended.unwrap();
}

#[tokio::test]
async fn stopping_answers_every_request() {
    let engine = Engine::start("e", forwards_of(2.0)).await;
    let scheduler = Scheduler::start(&[engine.addr], &["--max-active-requests", "1"]).await;
    let active = scheduler.client().generate(ask(10_000, 1)).await.unwrap().into_inner();
    let pending = scheduler.client().generate(ask(1, 2)).await.unwrap().into_inner();
    scheduler.shutdown.stop.cancel();
    for stream in [active, pending] {
        assert_eq!(Kind::of(&collect(stream).await.unwrap_err()), Kind::Unavailable);
    }
}

#[tokio::test]
async fn a_stall_turns_readiness_off_and_its_end_turns_it_on() {
    let engine = Engine::start("e", forwards_of(1.0)).await;
    // Planning is held for a second: nothing keeps the request out, and it is not admitted.
    let flags = ["--inject-delay", "queue_wait=1000", "--stall-seconds", "0.2"];
    let scheduler = Scheduler::start(&[engine.addr], &flags).await;
    becomes(&scheduler, READY, true).await;
    let waits = scheduler.client().generate(ask(2, 1)).await.unwrap().into_inner();
    becomes(&scheduler, READY, false).await;
    assert_eq!(collect(waits).await.unwrap().ids.len(), 2);
    becomes(&scheduler, READY, true).await;
}

#[tokio::test]
async fn overload_alone_is_no_stall() {
    let engine = Engine::start("e", forwards_of(20.0)).await;
    let flags = ["--stall-seconds", "0.2", "--max-active-requests", "1"];
    let scheduler = Scheduler::start(&[engine.addr], &flags).await;
    becomes(&scheduler, READY, true).await;
    let active = scheduler.client().generate(ask(60, 1)).await.unwrap().into_inner();
    let pending = scheduler.client().generate(ask(1, 2)).await.unwrap().into_inner();
    let (watched, active, pending) = tokio::join!(
        async {
            let mut ready = true;
            for _ in 0..50 {
                ready &= is_serving(&scheduler, READY).await;
                tokio::time::sleep(std::time::Duration::from_millis(20)).await;
            }
            ready
        },
        collect(active),
        collect(pending),
    );
    assert!(watched && active.is_ok() && pending.is_ok());
}

#[tokio::test]
async fn an_engine_is_found_by_its_name() {
    let engine = Engine::start("e", forwards_of(1.0)).await;
    let name = format!("localhost:{}", engine.addr.port());
    let scheduler = Scheduler::start(&[], &["--engine-dns", &name, "--engine-dns-seconds", "0.1"]).await;
    scheduler.has_engines(1).await;
    assert_eq!(scheduler.complete(ask(3, 1)).await.unwrap().ids.len(), 3);
}
