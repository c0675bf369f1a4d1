use std::collections::HashMap;

use firstlight_proto::v1::{RowEnd, Sequence};

use crate::harness::{Engine, Output, Scheduler, Setup, sequence};

#[tokio::test]
async fn a_prompt_seen_before_is_found_in_the_cache_and_says_the_same() {
    let engine = Engine::start(Setup::default()).await;
    let (mut scheduler, _) = Scheduler::attach(&engine, 1).await;
    let mut outputs: HashMap<u32, Output> = HashMap::new();
    let mut timelines = Vec::new();
    for (seq, no_prefix_cache) in [(1, false), (2, false), (3, true)] {
        let again = Sequence { handle: seq, no_prefix_cache, ..sequence(1, 48, 6) };
        scheduler.admit(seq.into(), vec![again]).await;
        let (output, steps) = scheduler.outputs(&[seq]).await;
        outputs.extend(output);
        timelines.extend(steps.into_iter().flat_map(|step| step.first_tokens));
    }
    let seen: Vec<_> = timelines
        .iter()
        .map(|first| first.timeline.as_ref().unwrap())
        .map(|timeline| (timeline.prompt_tokens_computed, timeline.prompt_tokens_cached))
        .collect();
    assert_eq!(seen, [(48, 0), (1, 47), (48, 0)]);
    assert!(outputs[&1] == outputs[&2] && outputs[&1] == outputs[&3]);
    engine.comes_to_rest().await;
}

#[tokio::test]
async fn when_the_pool_runs_dry_the_youngest_gives_way_and_the_oldest_finishes() {
    let engine = Engine::start(Setup { blocks: 8, ..Setup::default() }).await;
    let (mut scheduler, _) = Scheduler::attach(&engine, 1).await;
    scheduler.admit(1, (1..4).map(|handle| sequence(handle, 30, 60)).collect()).await;
    let outputs = scheduler.outputs(&[1, 2, 3]).await.0;
    assert_eq!(outputs[&1].end, Some(RowEnd::Length));
    assert_eq!(outputs[&3].end, Some(RowEnd::Preempted));

    // As a scheduler does: again, with the tokens it received.
    let mut again = sequence(3, 30, 60 - outputs[&3].tokens.len() as u32);
    again.token_ids.extend(&outputs[&3].tokens);
    again.resumed_tokens = outputs[&3].tokens.len() as u32;
    again.handle = 4;
    let alone = Sequence { handle: 5, ..sequence(3, 30, 60) };
    scheduler.admit(2, vec![again]).await;
    let resumed = scheduler.outputs(&[4]).await.0.remove(&4).unwrap();
    scheduler.admit(3, vec![alone]).await;
    let alone = scheduler.outputs(&[5]).await.0.remove(&5).unwrap();
    let whole: Vec<u32> = outputs[&3].tokens.iter().chain(&resumed.tokens).copied().collect();
    assert_eq!(whole, alone.tokens, "a preempted request says the same");
    engine.comes_to_rest().await;
}

#[tokio::test]
async fn under_pressure_every_sequence_ends_and_the_books_hold_all_along() {
    let engine = Engine::start(Setup { blocks: 12, ..Setup::default() }).await;
    let (mut scheduler, _) = Scheduler::attach(&engine, 1).await;
    for round in 0..10u32 {
        let handles: Vec<u32> = (1..7).map(|i| round * 10 + i).collect();
        let batch = handles.iter().map(|&handle| sequence(handle, 5 + handle % 40, 20)).collect();
        scheduler.admit(u64::from(round) + 1, batch).await;
        scheduler.cancel(&handles[4..]).await;
        engine.snapshot().await;
        scheduler.outputs(&handles).await;
        engine.snapshot().await;
    }
    engine.comes_to_rest().await;
}
