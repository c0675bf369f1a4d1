use std::time::Duration;

use tonic::Code;

use crate::harness::{Engine, Scheduler, Setup, sequence};

#[tokio::test]
async fn a_scheduler_that_never_reads_is_ended_and_others_go_on() {
    let stall_limit = Duration::from_millis(300);
    let engine = Engine::start(Setup { stall_limit, ..Setup::default() }).await;
    let (mut deaf, _) = Scheduler::attach_with_a_small_window(&engine, 1).await;
    deaf.admit(1, vec![sequence(1, 10, 4000)]).await;
    let (mut other, _) = Scheduler::attach(&engine, 2).await;
    other.admit(1, vec![sequence(1, 10, 1000)]).await;
    assert_eq!(other.outputs(&[1]).await.0[&1].tokens.len(), 1000);
    engine.comes_to_rest().await;
    let status = loop {
        if let Err(status) = deaf.next().await {
            break status;
        }
    };
    assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
    other.admit(2, vec![sequence(2, 10, 10)]).await;
    assert_eq!(other.outputs(&[2]).await.0[&2].tokens.len(), 10);
}

#[tokio::test]
async fn a_scheduler_that_reads_slowly_slows_its_own_sequences_and_loses_nothing() {
    let engine = Engine::start(Setup::default()).await;
    let (mut slow, _) = Scheduler::attach_with_a_small_window(&engine, 1).await;
    slow.admit(1, vec![sequence(1, 10, 2000)]).await;
    tokio::time::sleep(Duration::from_millis(200)).await;
    let held_back = engine.snapshot().await;
    assert_eq!(held_back.active, 1, "it has not run ahead of its reader");
    assert_eq!(slow.outputs(&[1]).await.0[&1].tokens.len(), 2000);
    engine.comes_to_rest().await;
}
