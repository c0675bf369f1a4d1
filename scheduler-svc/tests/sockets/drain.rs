//! An engine that drains: what has begun goes on there, everything else goes to another.

use std::time::Duration;

use firstlight_proto::{serve::health::READY, v1};

use crate::{
    harness::{Engine, Scheduler, Setup, ask, collect, forwards_of, next},
    lifecycle::becomes,
};

#[tokio::test]
async fn a_request_that_an_engine_has_not_begun_when_it_drains_is_served_by_another_at_once() {
    // The roomier one is sent requests first; one forward of it leaves time to send it one and to drain it.
    let leaving =
        Engine::set_up(Setup { name: "leaving", cost: forwards_of(400.0), ..Setup::default() }).await;
    let staying = Engine::set_up(Setup { name: "staying", blocks: 512, ..Setup::default() }).await;
    let scheduler = Scheduler::start(&[leaving.addr, staying.addr], &[]).await;
    let mut long = scheduler.client().generate(ask(3_000, 1)).await.unwrap().into_inner();
    next(&mut long).await;
    let waiting = scheduler.client().generate(ask(5, 2)).await.unwrap().into_inner();
    tokio::time::sleep(Duration::from_millis(50)).await;

    leaving.drain();
    let served = tokio::time::timeout(Duration::from_secs(1), collect(waiting)).await;
    let output = served.expect("it waits for the end of the drain").unwrap();
    let timeline = output.scheduler();
    assert_eq!((output.ids.len(), timeline.engine.as_str(), timeline.lost.len()), (5, "staying", 1));
    assert_eq!(
        (timeline.lost[0].cause(), timeline.lost[0].engine.as_str()),
        (v1::Cause::Preempted, "leaving")
    );

    for seed in 3..8 {
        let output = scheduler.complete(ask(5, seed)).await.unwrap();
        let timeline = output.scheduler();
        assert_eq!((timeline.engine.as_str(), timeline.lost.len()), ("staying", 0));
    }
    next(&mut long).await;
}

#[tokio::test]
async fn a_scheduler_whose_only_engine_drains_is_not_ready_and_keeps_what_it_is_asked() {
    let leaving = Engine::start("leaving", forwards_of(20.0)).await;
    let scheduler = Scheduler::start(&[leaving.addr], &[]).await;
    becomes(&scheduler, READY, true).await;
    let mut long = scheduler.client().generate(ask(3_000, 1)).await.unwrap().into_inner();
    next(&mut long).await;
    leaving.drain();
    becomes(&scheduler, READY, false).await;
    let _waiting = scheduler.client().generate(ask(5, 2)).await.unwrap();
    next(&mut long).await;
    assert_eq!((scheduler.in_flight().await, leaving.snapshot().await.inbox), (2, 0));
}
