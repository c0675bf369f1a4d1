use std::time::Duration;

use tonic::Code;

use crate::harness::{Engine, Scheduler, Setup, forwards_of, sequence};

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

#[tokio::test]
async fn a_scheduler_that_hangs_up_while_it_is_answered_takes_nobody_along() {
    let engine = Engine::start(Setup { cost: forwards_of(50), ..Setup::default() }).await;
    let (mut other, _) = Scheduler::attach(&engine, 1).await;
    other.admit(1, vec![sequence(1, 10, 40)]).await;
    let hang_up = async {
        for attachment in 2..10 {
            let (gone, _) = Scheduler::attach(&engine, attachment).await;
            gone.admit(1, vec![sequence(1, 10, 4000), sequence(2, 0, 1)]).await;
            // Within a forward: the batch is taken up when nobody is left to be told what is wrong with it.
            tokio::time::sleep(Duration::from_millis(10)).await;
            drop(gone);
        }
    };
    let ((outputs, _), ()) = tokio::join!(other.outputs(&[1]), hang_up);
    assert_eq!(outputs[&1].tokens.len(), 40);
    engine.comes_to_rest().await;
}

#[tokio::test]
async fn a_scheduler_that_reads_none_of_its_rejections_is_ended_and_others_go_on() {
    let engine = Engine::start(Setup::default()).await;
    let (mut deaf, _) = Scheduler::attach_with_a_small_window(&engine, 1).await;
    let (mut other, _) = Scheduler::attach(&engine, 2).await;
    let bad = (2..40_000).map(|handle| sequence(handle, 0, 1));
    deaf.admit(1, [sequence(1, 10, 4000)].into_iter().chain(bad).collect()).await;
    other.admit(1, vec![sequence(1, 10, 1000)]).await;
    assert_eq!(other.outputs(&[1]).await.0[&1].tokens.len(), 1000);
    let status = loop {
        if let Err(status) = deaf.next().await {
            break status;
        }
    };
    assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
    engine.comes_to_rest().await;
}
