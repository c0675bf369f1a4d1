use firstlight_proto::v1::{RowEnd, Sampling, Sequence, engine_message::Message};

use crate::harness::{Engine, Scheduler, Setup, forwards_of, sequence};

#[tokio::test]
async fn a_bad_sequence_is_rejected_with_its_kind_and_reason_and_the_engine_goes_on() {
    let engine = Engine::start(Setup { blocks: 16, ..Setup::default() }).await;
    let (mut scheduler, _) = Scheduler::attach(&engine, 1).await;
    let with = |change: fn(&mut Sequence)| {
        let mut bad = sequence(1, 8, 4);
        change(&mut bad);
        bad
    };
    let cases: [(&str, &str, Sequence); 7] = [
        ("invalid", "prompt is empty", with(|s| s.token_ids.clear())),
        ("never_fits", "context_length", with(|s| s.max_new_tokens = 1_000_000)),
        ("never_fits", "kv_blocks", with(|s| s.max_new_tokens = 1000)),
        ("invalid", "vocabulary", with(|s| s.token_ids.push(1000))),
        (
            "invalid",
            "temperature",
            with(|s| {
                s.sampling = Some(Sampling { temperature: -1.0, ..Sampling::default() });
            }),
        ),
        (
            "invalid",
            "temperature",
            with(|s| {
                s.sampling = Some(Sampling { temperature: f32::NAN, ..Sampling::default() });
            }),
        ),
        // 5 MB on the wire.
        ("never_fits", "context_length", with(|s| s.token_ids = vec![900; 2_500_000])),
    ];
    for (i, (kind, reason, bad)) in cases.into_iter().enumerate() {
        let seq = i as u64 + 1;
        let good = sequence(100 + seq as u32, 8, 2);
        let handle = good.handle;
        scheduler.admit(seq, vec![bad, good]).await;
        match scheduler.next().await.unwrap() {
            Message::Rejected(rejected) => {
                assert_eq!((rejected.handle, rejected.kind.as_str()), (1, kind), "{}", rejected.reason);
                assert!(rejected.reason.contains(reason), "{}", rejected.reason);
            }
            other => panic!("{other:?} for {reason}"),
        }
        let outputs = scheduler.outputs(&[handle]).await.0;
        assert_eq!(outputs[&handle].end, Some(RowEnd::Length));
    }
    engine.comes_to_rest().await;
}

#[tokio::test]
async fn a_batch_of_nothing_but_bad_sequences_still_gives_its_credit_back() {
    let engine = Engine::start(Setup::default()).await;
    let (mut scheduler, _) = Scheduler::attach(&engine, 1).await;
    scheduler.admit(1, vec![sequence(1, 0, 4)]).await;
    assert!(matches!(scheduler.next().await.unwrap(), Message::Rejected(_)));
    assert!(matches!(scheduler.next().await.unwrap(), Message::Begun(begun) if begun.seq == 1));
}

#[tokio::test]
async fn a_handle_in_flight_is_not_taken_twice() {
    let engine = Engine::start(Setup::default()).await;
    let (mut scheduler, _) = Scheduler::attach(&engine, 1).await;
    scheduler.admit(1, vec![sequence(1, 8, 4000), sequence(1, 8, 1)]).await;
    match scheduler.next().await.unwrap() {
        Message::Rejected(rejected) => assert!(rejected.reason.contains("in flight"), "{}", rejected.reason),
        other => panic!("{other:?}"),
    }
    scheduler.cancel(&[1]).await;
    engine.comes_to_rest().await;
}

#[tokio::test]
async fn a_handle_named_twice_in_a_cancel_ends_once() {
    let engine = Engine::start(Setup { cost: forwards_of(5), ..Setup::default() }).await;
    let (mut scheduler, _) = Scheduler::attach(&engine, 1).await;
    scheduler.admit(1, vec![sequence(1, 8, 4000), sequence(2, 8, 40)]).await;
    while scheduler.next_step().await.handles.is_empty() {}
    scheduler.cancel(&[1, 1, 77, 1]).await;
    scheduler.cancel(&[1]).await;
    let outputs = scheduler.outputs(&[1, 2]).await.0;
    assert_eq!((outputs[&1].end, outputs[&2].end), (Some(RowEnd::Cancelled), Some(RowEnd::Length)));
    engine.comes_to_rest().await;
}

#[tokio::test]
async fn a_handle_named_over_and_over_in_a_batch_is_taken_once() {
    let engine = Engine::start(Setup { cost: forwards_of(5), ..Setup::default() }).await;
    let (mut scheduler, _) = Scheduler::attach(&engine, 1).await;
    scheduler.admit(1, vec![sequence(1, 8, 40); 4]).await;
    scheduler.admit(2, vec![sequence(1, 8, 40); 2]).await;
    let mut rejected = 0;
    let mut end = None;
    while end.is_none() {
        match scheduler.next().await.unwrap() {
            Message::Rejected(_) => rejected += 1,
            Message::Step(step) => end = step.ends.into_iter().find(|&end| end != RowEnd::None as i32),
            _ => {}
        }
    }
    assert_eq!((rejected, end), (5, Some(RowEnd::Length as i32)));
    engine.comes_to_rest().await;
}

#[tokio::test]
async fn batches_numbered_alike_both_run() {
    let engine = Engine::start(Setup::default()).await;
    let (mut scheduler, _) = Scheduler::attach(&engine, 1).await;
    for (seq, handle) in [(3, 1), (3, 2), (0, 3), (u64::MAX, 4)] {
        scheduler.admit(seq, vec![sequence(handle, 8, 10)]).await;
    }
    let outputs = scheduler.outputs(&[1, 2, 3, 4]).await.0;
    assert!(outputs.values().all(|output| output.tokens.len() == 10));
    engine.comes_to_rest().await;
}
