use firstlight_proto::v1::{RowEnd, Sampling, Sequence, engine_message::Message};

use crate::harness::{Engine, Scheduler, Setup, sequence};

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
