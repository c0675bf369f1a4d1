//! Streams go on over lost attachments, without a repeated or missing token.

use std::time::Duration;

use firstlight_proto::v1;

use crate::{
    harness::{Engine, Output, Scheduler, Setup, ask, collect, forwards_of, until},
    relay::Relay,
};

const STREAMS: u64 = 12;
const TOKENS: u32 = 60;

async fn all(scheduler: &Scheduler) -> Vec<Output> {
    let outputs = (0..STREAMS).map(|seed| scheduler.complete(ask(TOKENS, seed)));
    futures_util::future::join_all(outputs).await.into_iter().map(Result::unwrap).collect()
}

#[tokio::test]
async fn a_stream_reset_without_an_engine_restart_loses_and_repeats_nothing() {
    let engine = Engine::start("e", forwards_of(5.0)).await;
    let relay = Relay::to(engine.addr).await;
    let scheduler = Scheduler::start(&[relay.addr], &[]).await;
    let undisturbed = all(&scheduler).await;

    let cuts = async {
        for _ in 0..2 {
            tokio::time::sleep(Duration::from_millis(120)).await;
            relay.cut();
        }
    };
    let (disturbed, ()) = tokio::join!(all(&scheduler), cuts);
    for (before, after) in undisturbed.iter().zip(&disturbed) {
        assert_eq!((&before.ids, &before.text), (&after.ids, &after.text));
    }
    let resumes: u32 = disturbed.iter().map(|o| o.scheduler().resumes).sum();
    assert!(resumes > 0, "no attachment was lost in time");
    assert!(disturbed.iter().all(|o| (o.scheduler().resumes > 0) == (o.scheduler().resume_ns > 0)));
    engine.comes_to_rest().await;
}

#[tokio::test]
async fn an_attempt_that_dies_before_its_first_token_is_a_lost_segment() {
    // Prefill takes so long that the cut comes before the first token.
    let engine = Engine::start("e", forwards_of(400.0)).await;
    let relay = Relay::to(engine.addr).await;
    let scheduler = Scheduler::start(&[relay.addr], &[]).await;
    let cut = async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        relay.cut();
    };
    let (output, ()) = tokio::join!(scheduler.complete(ask(1, 1)), cut);
    let output = output.unwrap();
    let timeline = output.scheduler();
    assert_eq!((timeline.lost.len(), timeline.resumes), (1, 0));
    let lost = &timeline.lost[0];
    assert_eq!((lost.cause(), lost.engine.as_str()), (v1::Cause::EngineLost, "e"));
    let lost_ns = lost.requeued_ns - lost.admit_ns;
    assert_eq!(timeline.queue_wait_ns + lost_ns, timeline.admit_ns - timeline.queued_ns);
    let by_cause: i64 = timeline.queue_wait_by_cause.iter().map(|c| c.ns).sum();
    assert_eq!(by_cause, timeline.queue_wait_ns);
}

#[tokio::test]
async fn when_one_engine_dies_the_other_takes_over_its_streams() {
    let (dies, lives) =
        (Engine::start("dies", forwards_of(5.0)).await, Engine::start("lives", forwards_of(5.0)).await);
    let flags = ["--prefill-max-batch-size", "2"];
    let scheduler = Scheduler::start(&[dies.addr, lives.addr], &flags).await;
    let undisturbed = all(&scheduler).await;
    let death = async move {
        tokio::time::sleep(Duration::from_millis(120)).await;
        drop(dies);
    };
    let (disturbed, ()) = tokio::join!(all(&scheduler), death);
    for (before, after) in undisturbed.iter().zip(&disturbed) {
        assert_eq!(before.ids, after.ids);
    }
    scheduler.has_engines(1).await;
    lives.comes_to_rest().await;
}

#[tokio::test]
async fn a_stream_that_only_a_lost_engine_could_hold_goes_on_when_that_is_back() {
    let start = |addr| Engine::at(addr, Setup { name: "large", cost: forwards_of(5.0), ..Setup::default() });
    let small =
        Engine::set_up(Setup { name: "small", cost: forwards_of(5.0), blocks: 8, ..Setup::default() }).await;
    let large = start("127.0.0.1:0".parse().unwrap()).await.unwrap();
    let (addr, engines) = (large.addr, [small.addr, large.addr]);
    let scheduler = Scheduler::start(&engines, &[]).await;
    let undisturbed = scheduler.complete(ask(150, 1)).await.unwrap();

    let stream = scheduler.client().generate(ask(150, 1)).await.unwrap().into_inner();
    tokio::time::sleep(Duration::from_millis(200)).await;
    drop(large);
    scheduler.has_engines(1).await;
    let meanwhile = scheduler.complete(ask(5, 2)).await.expect("the other engine goes on");
    assert_eq!(meanwhile.ids.len(), 5);
    let _large = until("its port is free again", async || start(addr).await.ok()).await;

    let resumed = collect(stream).await.unwrap();
    assert_eq!((resumed.ids, resumed.text), (undisturbed.ids, undisturbed.text));
    assert_eq!(resumed.finished.timeline.unwrap().scheduler.unwrap().resumes, 1);
}

#[tokio::test]
async fn a_preempted_request_goes_on_where_it_was() {
    // The pool holds 4096 blocks; twenty requests come to need more than that.
    let engine = Engine::start("e", forwards_of(0.5)).await;
    let reserve = Scheduler::start(&[engine.addr], &[]).await;
    let long = |seed| v1::GenerateRequest {
        prompt: Some(v1::generate_request::Prompt::TokenIds(v1::TokenIds {
            ids: vec![seed as u32 + 1; 1_000],
        })),
        ..ask(3_000, seed)
    };
    let alone = reserve.complete(long(19)).await.unwrap();
    drop(reserve);
    let flags = ["--kv-promise", "optimistic", "--kv-margin-tokens", "16", "--stream-buffer", "4096"];
    let scheduler = Scheduler::start(&[engine.addr], &flags).await;
    let outputs = futures_util::future::join_all((0..20).map(|seed| scheduler.complete(long(seed)))).await;
    let outputs: Vec<_> = outputs.into_iter().map(Result::unwrap).collect();
    assert!(outputs.iter().all(|o| o.ids.len() == 3_000));
    assert_eq!(outputs[19].ids, alone.ids);
    assert!(outputs.iter().any(|o| o.scheduler().resumes > 0), "nobody was preempted");
    engine.comes_to_rest().await;
}
