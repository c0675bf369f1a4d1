//! SIGTERM drains within a limit; a second one stops at once.

use std::time::Duration;

use firstlight_proto::error::Kind;
use firstlight_tests::{
    client::{Client, Stream, ids_request},
    pair::{Pair, Plan},
    wait,
};

/// Longer than the patience of any wait here: a stream of these must be ended, it does not end by itself.
const ENDLESS: u32 = 8000;
const SLOW_STEPS: &[&str] = &["--sim-decode-base-us", "50000"];
/// Logged once the first signal is taken: two signals sent before that would count as one.
const DRAINING: &str = "a second signal stops at once";

#[tokio::test]
async fn a_scheduler_that_drains_finishes_its_streams_and_takes_no_new_ones() {
    let mut pair = Pair::sim().engine(SLOW_STEPS).start().await;
    let client = pair.client().await;
    let stream = begun(&client, 40).await;
    pair.scheduler.terminate();
    let refused = wait::until("a refusal of new requests", || async {
        client.generate(ids_request(&[2], 1)).await.err()
    })
    .await;
    assert_eq!(Kind::of(&refused), Kind::Unavailable, "{refused:?}");
    assert_eq!(stream.rest().await.expect("it may finish").ids.len(), 40);
    assert!(pair.scheduler.ended().await.success());
    assert!(pair.engines[0].running(), "an engine outlives its scheduler");
}

#[tokio::test]
async fn a_scheduler_drains_no_longer_than_its_limit() {
    let mut pair = Pair::sim().engine(SLOW_STEPS).scheduler(&["--drain-seconds", "0.5"]).start().await;
    let stream = begun(&pair.client().await, ENDLESS).await;
    pair.scheduler.terminate();
    stream.rest().await.expect_err("it is cut off");
    pair.scheduler.ended().await;
}

#[tokio::test]
async fn a_second_signal_stops_a_scheduler_at_once() {
    let mut pair = with_endless_drain().start().await;
    let stream = begun(&pair.client().await, ENDLESS).await;
    pair.scheduler.terminate();
    logged(|| pair.scheduler.log(), DRAINING).await;
    pair.scheduler.terminate();
    stream.rest().await.expect_err("it is cut off");
    pair.scheduler.ended().await;
}

#[tokio::test]
async fn an_engine_that_drains_finishes_what_it_has_begun() {
    let mut pair = Pair::sim().engine(SLOW_STEPS).start().await;
    let stream = begun(&pair.client().await, 40).await;
    pair.engines[0].terminate();
    let reply = stream.rest().await.expect("it may finish");
    assert_eq!(reply.ids.len(), 40);
    assert!(pair.engines[0].ended().await.success());
    let timeline = reply.finished.and_then(|f| f.timeline).and_then(|t| t.scheduler).expect("timeline");
    assert_eq!(timeline.resumes, 0, "the same attachment carried it to its end");
}

#[tokio::test]
async fn a_second_signal_stops_an_engine_at_once_and_its_stream_moves_on() {
    let mut pair = with_endless_drain().engines(2).start().await;
    let client = pair.client().await;
    // One stream on each engine: the emptier one is chosen.
    let streams = [begun(&client, 100).await, begun(&client, 100).await];
    pair.engines[0].terminate();
    logged(|| pair.engines[0].log(), DRAINING).await;
    pair.engines[0].terminate();
    pair.engines[0].ended().await;
    for stream in streams {
        assert_eq!(stream.rest().await.expect("another engine takes over").ids.len(), 100);
    }
}

fn with_endless_drain() -> Plan {
    Pair::sim()
        .engine(SLOW_STEPS)
        .engine(&["--drain-seconds", "3600"])
        .scheduler(&["--drain-seconds", "3600"])
}

async fn begun(client: &Client, tokens: u32) -> Stream {
    let mut stream = client.open(ids_request(&[1], tokens)).await.unwrap();
    stream.tokens(1).await.unwrap();
    stream
}

async fn logged(log: impl Fn() -> String, word: &str) {
    let seen = async {
        while !log().contains(word) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    wait::within_patience(&format!("the word {word:?} in a log"), seen).await;
}
