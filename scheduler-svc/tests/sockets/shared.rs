//! One engine, two schedulers.

use std::time::Duration;

use crate::harness::{Engine, STUCK, Scheduler, ask, forwards_of};

#[tokio::test]
async fn a_scheduler_attaches_while_the_engine_is_busy_for_another() {
    let engine = Engine::start("e", forwards_of(1.0)).await;
    let one = Scheduler::start(&[engine.addr], &[]).await;
    let mut stream = one.client().generate(ask(20_000, 1)).await.unwrap().into_inner();
    stream.message().await.unwrap().expect("its first token");

    let engines = [engine.addr];
    let attach = Scheduler::start(&engines, &[]);
    let two = tokio::time::timeout(Duration::from_secs(2), attach).await.expect("it does not attach");
    assert_eq!(two.complete(ask(20, 2)).await.unwrap().ids.len(), 20);

    for _ in 0..20 {
        let next = tokio::time::timeout(STUCK, stream.message()).await.expect("the stream is stuck");
        next.unwrap().expect("it goes on");
    }
    drop(stream);
    engine.comes_to_rest().await;
}
