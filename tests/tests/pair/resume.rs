//! Streams outlive the engine and the connection they were served through: no token is lost or said twice.

use firstlight_proto::v1::{GenerateRequest, Sampling};
use firstlight_tests::{
    client::{Client, Reply, Stream, ids_request},
    pair::{Pair, Plan},
};
use futures_util::future::{join_all, try_join_all};

const TOKENS: u32 = 60;
const STREAMS: u32 = 8;

#[tokio::test]
async fn streams_go_on_after_their_engine_was_killed_and_restarted() {
    let mut pair = slow_enough_to_interrupt().start().await;
    let client = pair.client().await;
    let (undisturbed, streams) = expected_and_midway(&client).await;
    pair.engines[0].kill();
    pair.engines[0].restart();
    they_say_the_same(&undisturbed, streams).await;
}

#[tokio::test]
async fn streams_go_on_after_the_connection_to_the_engine_was_cut() {
    let pair = slow_enough_to_interrupt().relayed().start().await;
    let client = pair.client().await;
    let (undisturbed, streams) = expected_and_midway(&client).await;
    assert!(pair.relays[0].cut() > 0, "there was a connection to cut");
    they_say_the_same(&undisturbed, streams).await;
}

#[tokio::test]
async fn streams_move_to_another_engine_when_theirs_is_killed_for_good() {
    let mut pair = slow_enough_to_interrupt().engines(2).start().await;
    let client = pair.client().await;
    let (undisturbed, streams) = expected_and_midway(&client).await;
    pair.engines[0].kill();
    they_say_the_same(&undisturbed, streams).await;
}

/// Two of the eight streams still wait for admission when the others are midway.
fn slow_enough_to_interrupt() -> Plan {
    Pair::sim().engine(&["--sim-decode-base-us", "20000"]).scheduler(&["--max-active-requests", "6"])
}

/// What undisturbed requests say, and streams of the same requests of which six have said some of it.
async fn expected_and_midway(client: &Client) -> (Vec<Reply>, Vec<Stream>) {
    let undisturbed = try_join_all((0..STREAMS).map(|i| client.generate(request(i)))).await.unwrap();
    assert_ne!(undisturbed[0].ids, undisturbed[1].ids, "else a swap would go unseen");
    let mut streams = Vec::new();
    for i in 0..STREAMS {
        streams.push(client.open(request(i)).await.unwrap());
    }
    for stream in &mut streams[..6] {
        stream.tokens(5).await.unwrap();
    }
    (undisturbed, streams)
}

async fn they_say_the_same(undisturbed: &[Reply], streams: Vec<Stream>) {
    let resumed = join_all(streams.into_iter().map(Stream::rest)).await;
    let mut resumes = 0;
    for (expected, reply) in undisturbed.iter().zip(resumed) {
        let reply = reply.expect("the stream goes on");
        assert_eq!(reply.ids, expected.ids);
        let finished = reply.finished.expect("Finished");
        assert_eq!(finished.usage.expect("usage").output_tokens, TOKENS);
        resumes += finished.timeline.and_then(|t| t.scheduler).expect("timeline").resumes;
    }
    assert!(resumes >= 1, "no stream was disturbed: the test tested nothing");
}

/// Greedy and sampled ones by turns: the noise of a resumed request must be that of its position.
fn request(i: u32) -> GenerateRequest {
    let greedy = ids_request(&[100 + i, 7, 3], TOKENS);
    let sampling = Sampling { temperature: 1.0, seed: Some(u64::from(i)), ..Sampling::default() };
    if i.is_multiple_of(2) { greedy } else { GenerateRequest { sampling: Some(sampling), ..greedy } }
}
