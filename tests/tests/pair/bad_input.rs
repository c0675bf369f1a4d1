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
use tonic::Status;

async fn pair_with_a_tokenizer() -> Pair {
    let vocabulary = assets::smollm2();
    Pair::sim().scheduler(&["--model", vocabulary.to_str().unwrap()]).start().await
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
    // 128 tokens are 8 blocks of 16.
    let limits = [("context", ["--context-length", "128"]), ("kv_blocks", ["--kv-blocks", "8"])];
    for (limit, flags) in limits {
        let pair = Pair::sim().engine(&flags).start().await;
        let client = pair.client().await;
        let refused = assert_refused(&client, ids_request(&[1, 2, 3], 126), Kind::NeverFits, limit).await;
        assert!(refused.message().contains("lower max_new_tokens to 125"), "{refused:?}");
        let reply = client.generate(ids_request(&[1, 2, 3], 125)).await.unwrap();
        assert_eq!(reply.ids.len(), 125);
    }
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

async fn assert_refused(client: &Client, request: GenerateRequest, kind: Kind, names: &str) -> Status {
    let status = client.generate(request).await.expect_err(names);
    assert_eq!(Kind::of(&status), kind, "{names}: {status:?}");
    assert!(status.message().contains(names), "{names}: {status:?}");
    status
}
