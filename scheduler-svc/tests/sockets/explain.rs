//! `Explain` tells why a request waited, and for whom.

use firstlight_proto::v1;

use crate::harness::{Engine, Scheduler, ask, collect, forwards_of};

fn named(id: &str, n: u32) -> v1::GenerateRequest {
    v1::GenerateRequest { request_id: id.into(), ..ask(n, 1) }
}

#[tokio::test]
async fn a_wait_is_explained_by_the_requests_that_held_the_limit() {
    let engine = Engine::start("e", forwards_of(2.0)).await;
    let scheduler = Scheduler::start(&[engine.addr], &["--max-active-requests", "1"]).await;
    let holds = scheduler.client().generate(named("holds", 60)).await.unwrap().into_inner();
    let waits = scheduler.client().generate(named("waits", 2)).await.unwrap().into_inner();
    let mut admin = scheduler.admin().await;
    let mut explain = async |id: &str| admin.explain(v1::ExplainRequest { request_id: id.into() }).await;

    assert_eq!(explain("waits").await.unwrap().into_inner().state, "pending");
    let (holds, waits) = tokio::join!(collect(holds), collect(waits));
    let (_, waits) = (holds.unwrap(), waits.unwrap());
    let explained = explain("waits").await.unwrap().into_inner();
    assert_eq!(explained.state, "length");
    assert_eq!(explained.queue_wait_ns, waits.scheduler().queue_wait_ns);
    let held = explained.periods.iter().find(|p| p.cause() == v1::Cause::MaxActive).expect("max_active");
    assert_eq!((held.limit, held.holders[0].request_id.as_str()), (1, "holds"));
    assert_eq!(explain("never was").await.unwrap_err().code(), tonic::Code::NotFound);
}
