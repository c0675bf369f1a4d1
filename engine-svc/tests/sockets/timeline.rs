use firstlight_proto::v1::{Cause, EngineTimeline, SetLimits, Step, scheduler_message};

use crate::harness::{Engine, LIMITS, Scheduler, Setup, forwards_of, sequence};

const MS: i64 = 1_000_000;

fn timelines(steps: &[Step]) -> Vec<(u32, EngineTimeline, i64)> {
    let of = |step: &Step| {
        let sent = step.sent_ns;
        let firsts = step.first_tokens.clone().into_iter();
        firsts.map(move |first| (first.handle, first.timeline.unwrap(), sent)).collect::<Vec<_>>()
    };
    steps.iter().flat_map(of).collect()
}

fn cause(timeline: &EngineTimeline, cause: Cause) -> i64 {
    timeline.engine_wait_by_cause.iter().filter(|c| c.cause() == cause).map(|c| c.ns).sum()
}

fn check_sums(timeline: &EngineTimeline) {
    let wait: i64 = timeline.engine_wait_by_cause.iter().map(|cause| cause.ns).sum();
    assert_eq!(wait, timeline.admit_ns - timeline.received_ns, "causes sum to engine_wait");
    let prefill = timeline.prefill_own_ns + timeline.prefill_between_ns;
    assert_eq!(prefill, timeline.first_token_ns - timeline.admit_ns, "own and between sum to prefill");
    assert!(timeline.prefill_own_ns > 0 && timeline.prefill_between_ns >= 0);
}

#[tokio::test]
async fn the_parts_of_each_segment_sum_to_it_to_the_nanosecond() {
    let engine = Engine::start(Setup { cost: forwards_of(2), ..Setup::default() }).await;
    let (mut scheduler, _) = Scheduler::attach(&engine, 1).await;
    let limits = SetLimits { decode_first: true, ..LIMITS };
    scheduler.send(scheduler_message::Message::SetLimits(limits)).await;
    for seq in 0..6u32 {
        scheduler.admit(u64::from(seq) + 1, vec![sequence(seq, 30 + 40 * seq, 10)]).await;
    }
    let (_, steps) = scheduler.outputs(&[0, 1, 2, 3, 4, 5]).await;
    let timelines = timelines(&steps);
    assert_eq!(timelines.len(), 6);
    for (handle, timeline, _) in &timelines {
        check_sums(timeline);
        assert_eq!(timeline.prompt_tokens_computed, 30 + 40 * handle);
        assert!(timeline.prefill_chunks >= (30 + 40 * handle).div_ceil(64));
    }
    assert!(timelines.iter().any(|(_, timeline, _)| cause(timeline, Cause::DecodeFirst) > MS));
}

#[tokio::test]
async fn without_decode_first_every_wait_is_the_busy_engine() {
    let engine = Engine::start(Setup { cost: forwards_of(2), ..Setup::default() }).await;
    let (mut scheduler, _) = Scheduler::attach(&engine, 1).await;
    scheduler.admit(1, vec![sequence(1, 64, 20)]).await;
    scheduler.admit(2, vec![sequence(2, 64, 20)]).await;
    for (_, timeline, _) in timelines(&scheduler.outputs(&[1, 2]).await.1) {
        check_sums(&timeline);
        assert_eq!(cause(&timeline, Cause::DecodeFirst), 0);
    }
}

#[tokio::test]
async fn a_chunked_prompt_tells_its_own_forwards_from_what_ran_between() {
    let engine = Engine::start(Setup { cost: forwards_of(4), ..Setup::default() }).await;
    let (mut scheduler, _) = Scheduler::attach(&engine, 1).await;
    scheduler.admit(1, vec![sequence(1, 4, 1000)]).await;
    while scheduler.next_step().await.handles.is_empty() {}
    scheduler.admit(2, vec![sequence(2, 256, 1)]).await;
    let (_, timeline, _) = timelines(&scheduler.outputs(&[2]).await.1).pop().unwrap();
    assert_eq!(timeline.prefill_chunks, 4);
    // Four forwards of its own, three decode forwards of the other between them.
    assert!(timeline.prefill_own_ns >= 4 * 4 * MS && timeline.prefill_between_ns >= 3 * 4 * MS);
}

/// The three hand-overs of the engine: a delay injected at one shows there and nowhere else.
#[tokio::test]
async fn an_injected_delay_shows_in_its_segment_only() {
    const DELAY: i64 = 200 * MS;
    for segment in ["engine_wait", "prefill", "return"] {
        let inject = vec![match segment {
            "engine_wait" => "engine_wait=200",
            "prefill" => "prefill=200",
            _ => "return=200",
        }];
        let engine = Engine::start(Setup { inject, ..Setup::default() }).await;
        let (mut scheduler, _) = Scheduler::attach(&engine, 1).await;
        scheduler.admit(1, vec![sequence(1, 4, 1)]).await;
        let (_, timeline, sent) = timelines(&scheduler.outputs(&[1]).await.1).pop().unwrap();
        check_sums(&timeline);
        let seen = [
            ("engine_wait", timeline.admit_ns - timeline.received_ns),
            ("prefill", timeline.first_token_ns - timeline.admit_ns),
            ("return", sent - timeline.first_token_ns),
        ];
        for (name, ns) in seen {
            assert_eq!(ns >= DELAY, name == segment, "{segment} injected, {name} took {ns} ns");
        }
    }
}
