//! One engine, two schedulers.

use std::time::Duration;

use tokio::sync::oneshot;

use crate::harness::{Engine, Scheduler, ask, forwards_of, next};

#[tokio::test]
async fn a_scheduler_attaches_while_the_engine_is_busy_for_another() {
    // So short that every attachment is told of forwards between any two messages of its handshake.
    let engine = Engine::start("e", forwards_of(0.1)).await;
    let one = Scheduler::start(&[engine.addr], &[]).await;
    let mut stream = one.client().generate(ask(30_000, 1)).await.unwrap().into_inner();
    stream.message().await.unwrap().expect("its first token");
    let (stop, mut stopped) = oneshot::channel::<()>();
    let reads = tokio::spawn(async move {
        while stopped.try_recv().is_err() {
            next(&mut stream).await;
        }
        stream
    });

    let engines = [engine.addr];
    let attach = Scheduler::start(&engines, &[]);
    let two = tokio::time::timeout(Duration::from_secs(2), attach).await.expect("it does not attach");
    assert_eq!(two.complete(ask(20, 2)).await.unwrap().ids.len(), 20);

    stop.send(()).expect("it still reads");
    let mut stream = reads.await.unwrap();
    for _ in 0..20 {
        next(&mut stream).await;
    }
    drop(stream);
    engine.comes_to_rest().await;
}
