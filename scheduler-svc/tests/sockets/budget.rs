//! The budget at run time: changed all or nothing, leased with a time to live.

use std::time::Duration;

use firstlight_proto::v1;
use tonic::Code;

use crate::harness::{Engine, Scheduler, Setup, ask, collect, forwards_of, until};

fn active(n: u32) -> Option<v1::Budget> {
    Some(v1::Budget { max_active_requests: Some(n), ..Default::default() })
}

#[tokio::test]
async fn a_lease_that_nobody_renews_gives_the_base_back() {
    let engine = Engine::start("e", forwards_of(1.0)).await;
    let scheduler = Scheduler::start(&[engine.addr], &["--max-active-requests", "9"]).await;
    let mut admin = scheduler.admin().await;
    let lease = v1::LeaseBudgetRequest {
        change: active(3),
        ttl_ms: 150,
        holder: "test".into(),
        ..Default::default()
    };
    let leased = admin.lease_budget(lease.clone()).await.unwrap().into_inner().state.unwrap();
    assert_eq!(leased.budget.unwrap().max_active_requests, Some(3));
    let refused = admin.lease_budget(lease).await.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition);
    assert!(refused.message().contains("test"), "{refused:?}");
    until("the base is back", async || {
        let state = admin.get_budget(v1::GetBudgetRequest {}).await.unwrap().into_inner();
        (state.lease.is_none() && state.budget.unwrap().max_active_requests == Some(9)).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_lease_ends_for_admission_too_while_refused_calls_come_in() {
    let engine = Engine::start("e", forwards_of(1.0)).await;
    let scheduler = Scheduler::start(&[engine.addr], &["--max-active-requests", "9"]).await;
    let mut admin = scheduler.admin().await;
    let lease = v1::LeaseBudgetRequest { change: active(3), ttl_ms: 50, ..Default::default() };
    admin.lease_budget(lease.clone()).await.unwrap();
    let another = v1::LeaseBudgetRequest { lease_id: "another".into(), ..lease };
    until("the lease is over", async || {
        assert_eq!(admin.lease_budget(another.clone()).await.unwrap_err().code(), Code::NotFound);
        let state = admin.get_budget(v1::GetBudgetRequest {}).await.unwrap().into_inner();
        state.lease.is_none().then_some(())
    })
    .await;
    let in_force = scheduler.running.dispatcher.with(|dispatch| dispatch.dump().budget).await.unwrap();
    assert_eq!(in_force.max_active_requests, 9);
}

#[tokio::test]
async fn raising_a_limit_lets_waiting_requests_in_at_once() {
    let engine = Engine::start("e", forwards_of(1.0)).await;
    let scheduler = Scheduler::start(&[engine.addr], &["--max-active-requests", "1"]).await;
    let _active = scheduler.client().generate(ask(30_000, 1)).await.unwrap();
    let waiting = scheduler.client().generate(ask(2, 2)).await.unwrap().into_inner();
    tokio::time::sleep(Duration::from_millis(20)).await;
    let change = v1::SetBudgetRequest { change: active(2) };
    scheduler.admin().await.set_budget(change).await.unwrap();
    assert_eq!(collect(waiting).await.unwrap().ids.len(), 2);
}

#[tokio::test]
async fn a_change_out_of_range_changes_nothing() {
    let engine = Engine::start("e", forwards_of(1.0)).await;
    let scheduler = Scheduler::start(&[engine.addr], &[]).await;
    let mut admin = scheduler.admin().await;
    let before = admin.get_budget(v1::GetBudgetRequest {}).await.unwrap().into_inner();
    let wrong = v1::Budget { lookahead: Some(3), max_batch_size: Some(0), ..Default::default() };
    let refused = admin.set_budget(v1::SetBudgetRequest { change: Some(wrong) }).await.unwrap_err();
    assert!(refused.message().contains("max_batch_size"), "{refused:?}");
    assert_eq!(admin.get_budget(v1::GetBudgetRequest {}).await.unwrap().into_inner(), before);
}

#[tokio::test]
async fn decode_first_is_refused_while_an_engine_with_mixed_forwards_is_attached_and_disturbs_no_stream() {
    let engine = Engine::set_up(Setup { mixed: true, cost: forwards_of(5.0), ..Setup::default() }).await;
    let scheduler = Scheduler::start(&[engine.addr], &[]).await;
    let mut admin = scheduler.admin().await;
    let stream = scheduler.client().generate(ask(60, 1)).await.unwrap().into_inner();
    let change = Some(v1::Budget { decode_first: Some(true), ..Default::default() });
    let set = admin.set_budget(v1::SetBudgetRequest { change: change.clone() }).await.unwrap_err();
    let lease = v1::LeaseBudgetRequest { change, ttl_ms: 1_000, ..Default::default() };
    let leased = admin.lease_budget(lease).await.unwrap_err();
    for refused in [set, leased] {
        assert_eq!(refused.code(), Code::InvalidArgument);
        assert!(refused.message().contains("decode_first"), "{refused:?}");
    }
    let other = v1::SetBudgetRequest { change: active(7) };
    assert!(admin.set_budget(other).await.is_ok(), "what it can follow is taken");
    let output = collect(stream).await.unwrap();
    assert_eq!((output.ids.len(), output.scheduler().resumes), (60, 0));
}

#[tokio::test]
async fn an_engine_with_mixed_forwards_that_attaches_under_decode_first_serves() {
    let engine = Engine::set_up(Setup { mixed: true, ..Setup::default() }).await;
    let scheduler = Scheduler::start(&[engine.addr], &["--decode-first"]).await;
    let output = scheduler.complete(ask(60, 1)).await.unwrap();
    assert_eq!((output.ids.len(), output.scheduler().resumes), (60, 0));
    let state = scheduler.admin().await.get_budget(v1::GetBudgetRequest {}).await.unwrap().into_inner();
    assert_eq!(state.budget.unwrap().decode_first, Some(true), "other engines follow it");
}
