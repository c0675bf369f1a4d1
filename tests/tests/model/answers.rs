//! The pair says what the reference implementation says, whoever else is served and whatever happens meanwhile.

use firstlight_proto::v1::{GenerateRequest, Sampling};
use firstlight_tests::{
    assets,
    client::{Stream, ids_request},
    pair::{Pair, Plan},
    scrape::Page,
};
use futures_util::future::{join_all, try_join_all};
use serde_json::Value;

/// Share of |logits| that rounding may move; a choice is certain where the two best are further apart.
const ERROR: f64 = 1e-3;

#[tokio::test]
async fn smollm2_continues_as_the_reference_does() {
    continues_as(Pair::smollm2(), "smollm2/golden.json").await;
}

#[tokio::test]
async fn a_tiny_llama_continues_as_the_reference_does() {
    continues_as(Pair::tiny_llama(), "tiny-llama/golden.json").await;
}

#[tokio::test]
async fn answers_do_not_depend_on_neighbours_chunks_or_the_prefix_cache() {
    let requests: Vec<_> = (0..12).map(|i| request(i, 3 + 5 * i, 24)).collect();
    let alone = Pair::tiny_llama().start().await;
    let client = alone.client().await;
    let mut one_by_one = Vec::new();
    for request in &requests {
        one_by_one.push(client.generate(request.clone()).await.unwrap().ids);
    }
    let chunked = Pair::tiny_llama().scheduler(&["--step-prefill-tokens", "7"]).start().await;
    for _ in 0..2 {
        assert_eq!(together(&chunked, &requests).await, one_by_one);
    }
}

#[tokio::test]
async fn answers_do_not_depend_on_preemption() {
    let requests: Vec<_> = (0..8).map(|i| request(i, 20, 64)).collect();
    let roomy = Pair::tiny_llama().start().await;
    // Eight requests of 84 tokens in room for three of them: promises made too early are taken back.
    let tight = Pair::tiny_llama()
        .engine(&["--kv-tokens", "256"])
        .scheduler(&["--kv-promise", "optimistic", "--kv-margin-tokens", "16"])
        .start()
        .await;
    assert_eq!(together(&tight, &requests).await, together(&roomy, &requests).await);
    let page = Page::of(&tight.engine_metrics[0]).await;
    assert!(page.sum("firstlight_engine_preemptions_total") > 0.0, "no preemption: the test tested nothing");
}

#[tokio::test]
async fn answers_do_not_depend_on_drafts() {
    // Prompts that say something four times over: the model goes on with it, greedily or not.
    let requests: Vec<_> = (0..4)
        .map(|i| {
            let prompt = [504, 3575, 282, 4649 + i].repeat(4);
            GenerateRequest { sampling: request(i, 1, 1).sampling, ..ids_request(&prompt, 32) }
        })
        .collect();
    let plain = Pair::smollm2().start().await;
    let drafting = Pair::smollm2().engine(&["--draft-tokens", "4"]).start().await;
    assert_eq!(together(&drafting, &requests).await, together(&plain, &requests).await);
    let page = Page::of(&drafting.engine_metrics[0]).await;
    let (guessed, kept) = ["draft_tokens_total", "draft_tokens_kept_total"]
        .map(|n| page.sum(&format!("firstlight_engine_{n}")))
        .into();
    assert!(kept > 0.0 && kept < guessed, "{kept} of {guessed} guesses were right: the test tested nothing");
}

#[tokio::test]
async fn answers_do_not_depend_on_a_killed_engine() {
    let mut pair = Pair::smollm2().start().await;
    let client = pair.client().await;
    let request = |i: u32| ids_request(&[504, 3575, 282, 4649 + i], 32);
    let expected = try_join_all((0..4).map(|i| client.generate(request(i)))).await.unwrap();
    let mut streams = try_join_all((0..4).map(|i| client.open(request(i)))).await.unwrap();
    for stream in &mut streams {
        stream.tokens(3).await.unwrap();
    }
    pair.engines[0].kill();
    pair.engines[0].restart();
    for (reply, expected) in join_all(streams.into_iter().map(Stream::rest)).await.into_iter().zip(expected) {
        assert_eq!(reply.expect("the stream goes on").ids, expected.ids);
    }
}

/// Greedy and sampled ones by turns.
fn request(i: u32, prompt: u32, tokens: u32) -> GenerateRequest {
    let prompt: Vec<u32> = (0..prompt).map(|j| (i * 31 + j) % 256).collect();
    let sampling = Sampling { temperature: 1.0, seed: Some(i.into()), ..Sampling::default() };
    GenerateRequest { sampling: (i % 2 == 1).then_some(sampling), ..ids_request(&prompt, tokens) }
}

/// What all say when they are sent at once.
async fn together(pair: &Pair, requests: &[GenerateRequest]) -> Vec<Vec<u32>> {
    let client = pair.client().await;
    let replies = try_join_all(requests.iter().map(|request| client.generate(request.clone()))).await;
    replies.unwrap().into_iter().map(|reply| reply.ids).collect()
}

/// Greedy tokens equal those of the golden file up to the first choice that rounding may turn, and 90 % outright.
async fn continues_as(plan: Plan, golden: &str) {
    let golden = assets::golden(golden);
    let pair = plan.start().await;
    let client = pair.client().await;
    let continuations = golden["continuations"].as_array().unwrap();
    let requests = continuations
        .iter()
        .map(|c| client.generate(ids_request(&ids(&c["prompt"]), ids(&c["tokens"]).len() as u32)));
    let replies = try_join_all(requests).await.unwrap();
    let (mut same, mut all) = (0, 0);
    for (reply, expected) in replies.iter().zip(continuations) {
        let tokens = ids(&expected["tokens"]);
        let agree = tokens.iter().zip(&reply.ids).take_while(|(a, b)| a == b).count();
        if agree < tokens.len() {
            let (margin, size) = (&expected["margins"][agree], &expected["max_abs"][agree]);
            let uncertain = margin.as_f64().unwrap() <= 2.0 * ERROR * size.as_f64().unwrap();
            assert!(
                uncertain,
                "{:?}: token {agree} is {}, not {}",
                expected["prompt"], reply.ids[agree], tokens[agree]
            );
        }
        same += tokens.iter().zip(&reply.ids).filter(|(a, b)| a == b).count();
        all += tokens.len();
    }
    assert!(same * 10 >= all * 9, "{same} of {all} tokens are the reference's");
}

fn ids(list: &Value) -> Vec<u32> {
    list.as_array().unwrap().iter().map(|id| id.as_u64().unwrap() as u32).collect()
}
