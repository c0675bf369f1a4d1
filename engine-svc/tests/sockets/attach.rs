use firstlight_proto::v1::{
    ProbeClockRequest, RowEnd, SetLimits, engine_message::Message, scheduler_message,
};
use tonic::{Code, transport::Endpoint};

use crate::harness::{Engine, LIMITS, Scheduler, Setup, forwards_of, sequence};

#[tokio::test]
async fn an_attachment_is_greeted_with_the_model_the_pool_and_the_limits_in_force() {
    let engine = Engine::start(Setup::default()).await;
    let (_scheduler, hello) = Scheduler::attach(&engine, 1).await;
    assert_eq!((hello.name.as_str(), hello.model.as_str(), hello.backend.as_str()), ("engine", "sim", "sim"));
    assert_eq!((hello.vocab_size, hello.context_length, hello.eos_ids), (1000, 4096, vec![2]));
    assert_eq!((hello.block_size, hello.kv_blocks, hello.free_blocks), (16, 256, 256));
    assert_eq!((hello.max_sequences, hello.limits), (64, Some(LIMITS)));
    assert!(!hello.domain.unwrap().boot_id.is_empty());
}

#[tokio::test]
async fn a_batch_begins_before_its_tokens_come_and_batches_begin_in_order() {
    let engine = Engine::start(Setup::default()).await;
    let (mut scheduler, _) = Scheduler::attach(&engine, 1).await;
    scheduler.admit(1, vec![sequence(1, 60, 3), sequence(2, 5, 3)]).await;
    scheduler.admit(2, vec![sequence(3, 5, 3)]).await;
    let (mut begun, mut first_tokens, mut ended) = (Vec::new(), Vec::new(), 0);
    while ended < 3 {
        match scheduler.next().await.unwrap() {
            Message::Begun(message) => begun.push(message.seq),
            Message::Step(step) => {
                for first in &step.first_tokens {
                    first_tokens.push((first.handle, begun.clone()));
                }
                ended += step.ends.iter().filter(|&&end| end == RowEnd::Length as i32).count();
                assert_eq!(step.last_seq, begun.last().copied().unwrap_or_default());
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(begun, [1, 2]);
    let batch_of = |handle| if handle == 3 { 2 } else { 1 };
    for (handle, begun) in first_tokens {
        assert!(begun.contains(&batch_of(handle)), "handle {handle} spoke before its batch began");
    }
    engine.comes_to_rest().await;
}

#[tokio::test]
async fn each_sequence_gets_its_tokens_and_says_the_same_alone_or_in_company() {
    let engine = Engine::start(Setup::default()).await;
    let (mut scheduler, _) = Scheduler::attach(&engine, 1).await;
    scheduler.admit(1, vec![sequence(1, 20, 12)]).await;
    let alone = scheduler.outputs(&[1]).await.0.remove(&1).unwrap();
    assert_eq!((alone.tokens.len(), alone.end), (12, Some(RowEnd::Length)));

    let company: Vec<_> = (2..22).map(|handle| sequence(handle, 7 * handle, 12)).collect();
    let again = firstlight_proto::v1::Sequence { handle: 100, ..sequence(1, 20, 12) };
    scheduler.admit(2, company.into_iter().chain([again]).collect()).await;
    let outputs = scheduler.outputs(&(2..22).chain([100]).collect::<Vec<_>>()).await.0;
    assert_eq!(outputs[&100], alone);
}

#[tokio::test]
async fn a_resumed_sequence_goes_on_where_it_was() {
    let engine = Engine::start(Setup::default()).await;
    let (mut scheduler, _) = Scheduler::attach(&engine, 1).await;
    scheduler.admit(1, vec![sequence(1, 20, 12)]).await;
    let whole = scheduler.outputs(&[1]).await.0.remove(&1).unwrap().tokens;
    let mut resumed = sequence(1, 20, 7);
    resumed.handle = 2;
    resumed.token_ids.extend(&whole[..5]);
    resumed.resumed_tokens = 5;
    scheduler.admit(2, vec![resumed]).await;
    assert_eq!(scheduler.outputs(&[2]).await.0[&2].tokens, whole[5..]);
}

#[tokio::test]
async fn cancel_frees_the_blocks_within_one_step() {
    let engine = Engine::start(Setup { cost: forwards_of(20), ..Setup::default() }).await;
    let (mut scheduler, _) = Scheduler::attach(&engine, 1).await;
    scheduler.admit(1, vec![sequence(1, 40, 1000)]).await;
    while scheduler.next_step().await.handles.is_empty() {}
    scheduler.cancel(&[1]).await;
    let (outputs, steps) = scheduler.outputs(&[1]).await;
    assert_eq!(outputs[&1].end, Some(RowEnd::Cancelled));
    // One forward may be under way when the cancel arrives, and one may have ended just before.
    assert!(steps.len() <= 3, "{} steps after the cancel", steps.len());
    assert_eq!(steps.last().unwrap().free_blocks, 256);
    engine.comes_to_rest().await;
}

#[tokio::test]
async fn a_cancelled_batch_that_never_began_gives_its_credit_back() {
    let engine = Engine::start(Setup { cost: forwards_of(50), ..Setup::default() }).await;
    let (mut scheduler, _) = Scheduler::attach(&engine, 1).await;
    scheduler.admit(1, vec![sequence(1, 640, 1)]).await;
    scheduler.admit(2, vec![sequence(2, 4, 1)]).await;
    scheduler.cancel(&[2]).await;
    let mut begun = Vec::new();
    while begun.len() < 2 {
        if let Message::Begun(message) = scheduler.next().await.unwrap() {
            begun.push(message.seq);
        }
    }
    assert_eq!(begun, [1, 2]);
}

#[tokio::test]
async fn two_schedulers_attach_at_once_and_each_hears_only_its_own() {
    let engine = Engine::start(Setup::default()).await;
    let (mut one, _) = Scheduler::attach(&engine, 7).await;
    // Schedulers choose their attachment ids themselves; they may well be equal.
    let (mut two, _) = Scheduler::attach(&engine, 7).await;
    one.admit(1, vec![sequence(1, 10, 6)]).await;
    two.admit(1, vec![sequence(1, 33, 8)]).await;
    let (of_one, of_two) = tokio::join!(one.outputs(&[1]), two.outputs(&[1]));
    assert_eq!(of_one.0[&1].tokens.len(), 6);
    assert_eq!(of_two.0[&1].tokens.len(), 8);
    engine.comes_to_rest().await;
}

#[tokio::test]
async fn probes_are_answered_while_a_forward_runs() {
    let engine = Engine::start(Setup { cost: forwards_of(300), ..Setup::default() }).await;
    let (mut scheduler, _) = Scheduler::attach(&engine, 1).await;
    scheduler.admit(1, vec![sequence(1, 4, 1)]).await;
    assert!(matches!(scheduler.next().await.unwrap(), Message::Begun(_)));
    scheduler.send(scheduler_message::Message::Probe(ProbeClockRequest { t1_ns: 5 })).await;
    match scheduler.next().await.unwrap() {
        Message::Probe(answer) => {
            assert_eq!(answer.t1_ns, 5);
            assert!(answer.t2_ns > 0 && answer.t3_ns >= answer.t2_ns);
            assert_eq!(answer.name, "engine");
        }
        other => panic!("the probe waited behind {other:?}"),
    }
}

#[tokio::test]
async fn a_stream_that_breaks_the_protocol_is_ended_with_the_reason() {
    let engine = Engine::start(Setup::default()).await;
    let endpoint = || Endpoint::from_shared(engine.url.clone()).unwrap();
    let mut unopened = Scheduler::dial(endpoint(), 1).await.unwrap();
    unopened.admit(1, vec![sequence(1, 4, 1)]).await;
    let status = unopened.next().await.unwrap_err();
    assert!(status.code() == Code::InvalidArgument && status.message().contains("Open"), "{status}");

    let (mut confused, _) = Scheduler::attach(&engine, 1).await;
    confused.admit(1, vec![sequence(1, 4, 100)]).await;
    let right = std::mem::replace(&mut confused.attachment, 2);
    confused.cancel(&[1]).await;
    confused.attachment = right;
    let status = loop {
        if let Err(status) = confused.next().await {
            break status;
        }
    };
    assert!(status.code() == Code::InvalidArgument && status.message().contains("attachment"), "{status}");
    engine.comes_to_rest().await;
}

#[tokio::test]
async fn limits_apply_from_the_next_forward_on() {
    let engine = Engine::start(Setup::default()).await;
    let (mut scheduler, _) = Scheduler::attach(&engine, 1).await;
    let limits = SetLimits { max_batch_size: 2, ..LIMITS };
    scheduler.send(scheduler_message::Message::SetLimits(limits)).await;
    scheduler.admit(1, (1..6).map(|handle| sequence(handle, 4, 10)).collect()).await;
    let (_, steps) = scheduler.outputs(&[1, 2, 3, 4, 5]).await;
    let decode = firstlight_proto::v1::ForwardKind::Decode as i32;
    assert!(steps.iter().filter(|step| step.kind == decode).all(|step| step.rows <= 2));
}

#[tokio::test]
async fn decode_first_ends_no_stream_of_an_engine_with_mixed_forwards() {
    let engine = Engine::start(Setup { mixed: true, cost: forwards_of(5), ..Setup::default() }).await;
    let limits = SetLimits { decode_first: true, ..LIMITS };
    let mut scheduler = Scheduler::dial(Endpoint::from_shared(engine.url.clone()).unwrap(), 1).await.unwrap();
    scheduler.open(Some(limits)).await;
    match scheduler.next().await.unwrap() {
        Message::Hello(hello) => assert_eq!((hello.mixed, hello.limits), (true, Some(LIMITS))),
        other => panic!("not greeted but told {other:?}"),
    }
    scheduler.admit(1, vec![sequence(1, 10, 20)]).await;
    scheduler.send(scheduler_message::Message::SetLimits(limits)).await;
    assert_eq!(scheduler.outputs(&[1]).await.0[&1].tokens.len(), 20);
}
