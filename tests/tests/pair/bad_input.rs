//! Bad input over a real socket: each is refused with its kind and what is wrong, and the service goes on serving.

use firstlight_proto::{
    error::Kind,
    v1::{GenerateRequest, Sampling, TokenIds, generate_request::Prompt},
};
use firstlight_tests::{
    assets,
    client::{Client, ids_request, text_request},
    pair::Pair,
};

/// KV blocks of 16 tokens: fewer than the context of 2048 would need.
const POOL: u32 = 64 * 16;

async fn pair_with_a_tokenizer() -> Pair {
    let vocabulary = assets::smollm2();
    Pair::sim()
        .engine(&["--context-length", "2048", "--kv-blocks", "64"])
        .scheduler(&["--model", vocabulary.to_str().unwrap()])
        .start()
        .await
}

#[tokio::test]
async fn wrong_requests_are_refused_by_name_and_the_next_one_is_served() {
    let pair = pair_with_a_tokenizer().await;
    let client = pair.client().await;
    let good = || text_request("Hello there", 2);
    let sampled = |temperature: f32| GenerateRequest {
        sampling: Some(Sampling { temperature, ..Sampling::default() }),
        ..good()
    };
    let wrong = [
        ("text", text_request("", 2)),
        ("prompt", GenerateRequest { prompt: None, ..good() }),
        ("token_ids", ids_request(&[], 2)),
        ("token_ids", ids_request(&[1, 49_152], 2)),
        ("max_new_tokens", GenerateRequest { max_new_tokens: 0, ..good() }),
        ("temperature", sampled(-1.0)),
        ("temperature", sampled(f32::NAN)),
        ("temperature", sampled(f32::INFINITY)),
        ("model", GenerateRequest { model: "another".into(), ..good() }),
        ("request_id", GenerateRequest { request_id: "two words".into(), ..good() }),
        ("text", text_request(&"five megabytes ".repeat(5_000_000 / 15), 2)),
    ];
    for (field, request) in wrong {
        assert_refused(&client, request, Kind::Invalid, field).await;
        client.generate(good()).await.unwrap();
    }
}

#[tokio::test]
async fn a_request_that_can_never_fit_is_told_the_limit_and_the_remedy() {
    let pair = pair_with_a_tokenizer().await;
    let client = pair.client().await;
    for (limit, tokens) in [("context_length", 2048), ("kv_blocks", POOL)] {
        assert_refused(&client, ids_request(&[1, 2, 3], tokens), Kind::NeverFits, limit).await;
        client.generate(ids_request(&[1, 2, 3], 2)).await.unwrap();
    }
    let fits = ids_request(&[1; 16], POOL - 16);
    assert_eq!(client.generate(fits).await.unwrap().ids.len(), POOL as usize - 16);
}

#[tokio::test]
async fn an_id_in_flight_is_refused_and_may_be_used_again_afterwards() {
    let pair = Pair::sim().engine(&["--sim-decode-base-us", "20000"]).start().await;
    let client = pair.client().await;
    let named = || GenerateRequest { request_id: "twin".into(), ..ids_request(&[1], 50) };
    let mut first = client.open(named()).await.unwrap();
    first.tokens(1).await.unwrap();
    assert_refused(&client, named(), Kind::Invalid, "request_id").await;
    assert_eq!(first.rest().await.expect("the first is not disturbed").ids.len(), 50);
    client.generate(named()).await.expect("the id is free again");
}

#[tokio::test]
async fn what_is_no_request_at_all_harms_nobody() {
    use tokio::io::AsyncWriteExt as _;
    let pair = Pair::sim().start().await;
    for address in [&pair.scheduler.address, &pair.admin, &pair.engines[0].address] {
        let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
        stream.write_all(&[0xff; 4096]).await.unwrap();
    }
    let client = pair.client().await;
    let prompt = Prompt::TokenIds(TokenIds { ids: vec![5; 100] });
    let request = GenerateRequest { prompt: Some(prompt), ..ids_request(&[1], 2) };
    client.generate(request).await.unwrap();
}

async fn assert_refused(client: &Client, request: GenerateRequest, kind: Kind, names: &str) {
    let status = client.generate(request).await.expect_err(names);
    assert_eq!(Kind::of(&status), kind, "{names}: {status:?}");
    let told = format!("{} {:?}", status.message(), status.details());
    assert!(told.contains(names), "{names}: {status:?}");
}
