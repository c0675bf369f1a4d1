//! A client that goes away frees what it held, and harms nobody else.

use std::time::Duration;

use firstlight_proto::error::Kind;
use firstlight_tests::{
    client::{Client, Stream, ids_request, with_deadline},
    pair::Pair,
    scrape::Page,
    wait,
};

const FREE: &str = "firstlight_engine_kv_blocks_free";
const STEPS: &str = "firstlight_engine_steps_total";
/// The step that runs when the client leaves ends first, and the news may just miss the next one.
const WITHIN_ONE_STEP: f64 = 2.0;
/// Steps long enough that news travels well within one.
const SLOW_STEPS: &[&str] = &["--sim-decode-base-us", "300000"];

#[tokio::test]
async fn a_client_that_hangs_up_frees_its_kv_blocks_within_one_step() {
    let pair = Pair::sim().engine(SLOW_STEPS).start().await;
    let (_stays, leaves) = one_that_stays_and_one_that_leaves(&pair, None).await;
    let before = Page::of(&pair.engine_metrics[0]).await;
    drop(leaves);
    let after = freed(&pair, &before).await;
    assert!(after.sum(STEPS) - before.sum(STEPS) <= WITHIN_ONE_STEP);
    assert_eq!(cancels(&pair, "client").await, 1.0);
}

#[tokio::test]
async fn a_passed_deadline_frees_kv_blocks_within_one_step() {
    let pair = Pair::sim().engine(SLOW_STEPS).start().await;
    let deadline = Some(Duration::from_secs(2));
    let (_stays, leaves) = one_that_stays_and_one_that_leaves(&pair, deadline).await;
    let status = leaves.rest().await.expect_err("its deadline passes");
    let before = Page::of(&pair.engine_metrics[0]).await;
    assert_eq!(Kind::of(&status), Kind::Deadline, "{status:?}");
    let after = wait::until("the blocks of a request whose deadline passed", || async {
        let page = Page::of(&pair.engine_metrics[0]).await;
        (page.sum("firstlight_engine_active_sequences") == 1.0).then_some(page)
    })
    .await;
    assert!(after.sum(STEPS) - before.sum(STEPS) <= WITHIN_ONE_STEP);
    assert_eq!(cancels(&pair, "deadline").await, 1.0);
    assert_eq!(failed_without_a_token(&pair, "deadline").await, 0.0, "its TTFT is counted already");
}

#[tokio::test]
async fn a_deadline_that_passes_in_the_queue_is_told_with_the_wait_by_cause() {
    let pair = Pair::sim().engine(SLOW_STEPS).scheduler(&["--max-active-requests", "1"]).start().await;
    let client = pair.client().await;
    let mut holds = client.open(ids_request(&[1], 1000)).await.unwrap();
    holds.tokens(1).await.unwrap();
    let waits = with_deadline(ids_request(&[2], 4), Duration::from_millis(700));
    let status = client.generate(waits).await.unwrap_err();
    assert_eq!(Kind::of(&status), Kind::Deadline, "{status:?}");
    assert!(status.message().contains("max_active"), "{status:?}");
    assert_eq!(failed_without_a_token(&pair, "deadline").await, 1.0);
}

#[tokio::test]
async fn a_client_that_never_reads_loses_only_its_own_request() {
    let pair = Pair::sim()
        .engine(&["--sim-time-scale", "0", "--context-length", "65536", "--kv-tokens", "131072"])
        .scheduler(&["--stream-buffer", "256"])
        .start()
        .await;
    let idle = Page::of(&pair.engine_metrics[0]).await.sum(FREE);
    let lazy = Client::connect_narrow(&pair.scheduler.address).await;
    // Far more than the transport and the stream's buffer hold together.
    let unread = lazy.open(ids_request(&[1], 60_000)).await.unwrap();
    let cancelled = wait::until("the cancel of a stream that is not read", || async {
        let page = Page::of(&pair.engine_metrics[0]).await;
        (page.sum("firstlight_engine_cancels_total") == 1.0).then_some(())
    });
    let others = async {
        let client = pair.client().await;
        for first in 2..20 {
            let reply = client.generate(ids_request(&[first], 200)).await.unwrap();
            assert_eq!(reply.ids.len(), 200);
        }
    };
    tokio::join!(cancelled, others);
    wait::until("the blocks of the stream that was not read", || async {
        (Page::of(&pair.engine_metrics[0]).await.sum(FREE) == idle).then_some(())
    })
    .await;
    let status = unread.rest().await.expect_err("it was too slow");
    assert_eq!(Kind::of(&status), Kind::Full, "{status:?}");
    assert_eq!(cancels(&pair, "overflow").await, 1.0);
}

/// Two streams that have begun: one keeps the engine stepping, the other holds at least ten blocks.
async fn one_that_stays_and_one_that_leaves(pair: &Pair, deadline: Option<Duration>) -> (Stream, Stream) {
    let client = pair.client().await;
    let mut stays = client.open(ids_request(&[1], 1000)).await.unwrap();
    let prompt: Vec<u32> = (2..162).collect();
    let leaving = ids_request(&prompt, 1000);
    let mut leaves = match deadline {
        Some(deadline) => client.open(with_deadline(leaving, deadline)).await.unwrap(),
        None => client.open(leaving).await.unwrap(),
    };
    stays.tokens(1).await.unwrap();
    leaves.tokens(1).await.unwrap();
    (stays, leaves)
}

/// The first page with at least ten blocks more than `before`.
async fn freed(pair: &Pair, before: &Page) -> Page {
    wait::until("blocks that are free again", || async {
        let page = Page::of(&pair.engine_metrics[0]).await;
        (page.sum(FREE) >= before.sum(FREE) + 9.0).then_some(page)
    })
    .await
}

async fn cancels(pair: &Pair, by: &str) -> f64 {
    let page = Page::of(&pair.scheduler_metrics).await;
    page.sum_where("firstlight_cancels_total", &format!("by=\"{by}\""))
}

async fn failed_without_a_token(pair: &Pair, kind: &str) -> f64 {
    let page = Page::of(&pair.scheduler_metrics).await;
    page.sum_where("firstlight_ttft_failures_total", &format!("kind=\"{kind}\""))
}
