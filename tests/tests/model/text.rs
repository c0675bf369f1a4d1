//! Text in, text out.

use firstlight_proto::v1::{FinishReason, GenerateRequest, Stop};
use firstlight_tests::{client::text_request, pair::Pair};

#[tokio::test]
async fn the_capital_of_france_is_paris_and_a_stop_string_ends_before_itself() {
    let pair = Pair::smollm2().start().await;
    let client = pair.client().await;
    let whole = client.generate(text_request("The capital of France is", 12)).await.unwrap();
    assert!(whole.text.starts_with(" Paris."), "{:?}", whole.text);
    let usage = whole.finished.unwrap().usage.unwrap();
    assert_eq!((usage.prompt_tokens, usage.output_tokens as usize), (5, whole.ids.len()));

    let stop = Some(Stop { strings: vec!["aris".into()], ..Stop::default() });
    let stopped = GenerateRequest { stop, ..text_request("The capital of France is", 12) };
    let stopped = client.generate(stopped).await.unwrap();
    assert_eq!(stopped.text, " P");
    let finished = stopped.finished.unwrap();
    assert_eq!(finished.reason(), FinishReason::StopString);
    assert_eq!(finished.usage.unwrap().output_tokens, 1, "counted up to the match");
}

#[tokio::test]
async fn the_end_of_a_turn_ends_generation_unless_it_is_ignored() {
    let pair = Pair::smollm2().start().await;
    let client = pair.client().await;
    let chat = "<|im_start|>user\nSay hi.<|im_end|>\n<|im_start|>assistant\n";
    let ended = client.generate(text_request(chat, 100)).await.unwrap();
    assert_eq!(ended.finished.unwrap().reason(), FinishReason::Eos);
    let count = ended.ids.len() as u32 + 3;
    let stop = Some(Stop { ignore_eos: true, ..Stop::default() });
    let on = client.generate(GenerateRequest { stop, ..text_request(chat, count) }).await.unwrap();
    assert_eq!(on.finished.unwrap().reason(), FinishReason::Length);
    assert_eq!(on.ids.len() as u32, count);
    assert_eq!(on.ids[..ended.ids.len()], ended.ids);
}
