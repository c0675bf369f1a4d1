//! What a client sees of a request that goes well.

use firstlight_proto::v1::{self, FinishReason};

use crate::harness::{Engine, Scheduler, ask, collect, forwards_of};

#[tokio::test]
async fn a_stream_carries_every_token_once_and_ends_with_its_timeline() {
    let engine = Engine::start("e", forwards_of(1.0)).await;
    let scheduler = Scheduler::start(&[engine.addr], &[]).await;
    let output = scheduler.complete(ask(20, 1)).await.unwrap();

    assert_eq!((output.ids.len(), output.emitted.len()), (20, 20));
    assert!(output.emitted.is_sorted());
    assert_eq!(output.finished.reason(), FinishReason::Length);
    let usage = output.finished.usage.unwrap();
    assert_eq!((usage.prompt_tokens, usage.output_tokens), (8, 20));

    let (scheduler, engine) = (output.scheduler(), output.engine());
    let chain = [
        scheduler.received_ns,
        scheduler.queued_ns,
        scheduler.admit_ns,
        engine.received_ns,
        engine.admit_ns,
        engine.first_token_ns,
        scheduler.first_token_ns,
        scheduler.last_token_ns,
        scheduler.finished_ns,
    ];
    assert!(chain[0] > 0 && chain.is_sorted(), "{chain:?}");
    assert_eq!(scheduler.first_token_ns, output.emitted[0]);
    let by_cause: i64 = scheduler.queue_wait_by_cause.iter().map(|c| c.ns).sum();
    assert_eq!(by_cause, scheduler.queue_wait_ns);
    assert_eq!(scheduler.queue_wait_ns, scheduler.admit_ns - scheduler.queued_ns);
    let clock = output.timeline().engine_clock.as_ref().unwrap();
    assert_eq!((clock.same_domain, clock.offset_ns, clock.bound_ns), (true, 0, 0));
}

#[tokio::test]
async fn the_causes_of_a_wait_sum_to_it_exactly() {
    let engine = Engine::start("e", forwards_of(2.0)).await;
    let flags = ["--max-active-requests", "2", "--prefill-max-batch-size", "1"];
    let scheduler = Scheduler::start(&[engine.addr], &flags).await;
    let outputs = futures_util::future::join_all((0..8).map(|seed| scheduler.complete(ask(10, seed)))).await;
    let mut waited = 0;
    for output in outputs {
        let output = output.unwrap();
        let timeline = output.scheduler();
        let by_cause: i64 = timeline.queue_wait_by_cause.iter().map(|c| c.ns).sum();
        assert_eq!(by_cause, timeline.queue_wait_ns);
        let max_active = timeline.queue_wait_by_cause.iter().filter(|c| c.cause() == v1::Cause::MaxActive);
        waited += max_active.map(|c| c.ns).sum::<i64>();
    }
    assert!(waited > 0, "two may be active: the others wait for that");
}

#[tokio::test]
async fn headers_carry_the_id_and_come_before_any_token() {
    let engine = Engine::start("e", forwards_of(1.0)).await;
    // No engine has room for a request while another is active: its headers must come all the same.
    let scheduler = Scheduler::start(&[engine.addr], &["--max-active-requests", "1"]).await;
    let first = scheduler.client().generate(ask(6_000, 1)).await.unwrap();
    let request = v1::GenerateRequest { request_id: "mine".into(), ..ask(1, 2) };
    let second = scheduler.client().generate(request).await.unwrap();
    assert_eq!(second.metadata().get("x-request-id").unwrap(), "mine");
    assert_eq!(first.metadata().get("x-request-id").unwrap().len(), 36, "a UUID");
    drop(first);
    assert_eq!(collect(second.into_inner()).await.unwrap().finished.request_id, "mine");
}

#[tokio::test]
async fn a_stop_string_over_token_boundaries_ends_the_text_before_it_and_the_sequence() {
    let engine = Engine::start("e", forwards_of(1.0)).await;
    let scheduler = Scheduler::start(&[engine.addr], &[]).await;
    let whole = scheduler.complete(ask(200, 5)).await.unwrap();
    let chars: Vec<char> = whole.text.chars().collect();
    let stop: String = chars[chars.len() / 2..][..4].iter().collect();
    let expected = &whole.text[..whole.text.find(&stop).unwrap()];

    let mut request = ask(5_000, 5);
    request.stop.as_mut().unwrap().strings.push(stop);
    let stopped = scheduler.complete(request).await.unwrap();
    assert_eq!(stopped.text, expected);
    assert_eq!(stopped.finished.reason(), FinishReason::StopString);
    let counted = stopped.finished.usage.unwrap().output_tokens as usize;
    assert_eq!(counted, stopped.ids.len());
    assert!(counted < whole.ids.len());
    assert_eq!(stopped.ids, whole.ids[..counted]);
    engine.comes_to_rest().await;
}

#[tokio::test]
async fn a_stop_token_is_returned_and_its_text_left_out() {
    let engine = Engine::start("e", forwards_of(1.0)).await;
    let scheduler = Scheduler::start(&[engine.addr], &[]).await;
    let whole = scheduler.complete(ask(50, 9)).await.unwrap();
    let stop = whole.ids[20];
    let mut request = ask(50, 9);
    request.stop.as_mut().unwrap().token_ids.push(stop);
    let stopped = scheduler.complete(request).await.unwrap();
    let until = whole.ids.iter().position(|id| *id == stop).unwrap();
    assert_eq!(stopped.ids, whole.ids[..=until]);
    assert_eq!(stopped.finished.reason(), FinishReason::StopToken);
}

#[tokio::test]
async fn two_engines_share_the_load() {
    let engines = [Engine::start("a", forwards_of(5.0)).await, Engine::start("b", forwards_of(5.0)).await];
    let addrs = [engines[0].addr, engines[1].addr];
    let scheduler = Scheduler::start(&addrs, &["--prefill-max-batch-size", "2"]).await;
    let outputs = futures_util::future::join_all((0..16).map(|seed| scheduler.complete(ask(20, seed)))).await;
    let on = |name: &str| outputs.iter().filter(|o| o.as_ref().unwrap().engine().engine == name).count();
    assert!(on("a") >= 4 && on("b") >= 4, "{} on a, {} on b", on("a"), on("b"));
}

#[tokio::test]
async fn the_model_tells_what_is_served_and_by_whom() {
    let engine = Engine::start("e", forwards_of(1.0)).await;
    let scheduler = Scheduler::start(&[engine.addr], &["--model-name", "mine"]).await;
    let model = scheduler.client().get_model(v1::GetModelRequest {}).await.unwrap().into_inner();
    assert_eq!((model.name.as_str(), model.vocab_size, model.has_tokenizer), ("mine", 272, true));
    assert_eq!((model.engines.len(), model.engines[0].name.as_str()), (1, "e"));
}
