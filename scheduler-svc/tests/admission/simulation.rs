//! The core under hours of traffic, in virtual time: the replay with the engines' own planner and cost model.

use std::time::Duration;

use super::world::{MS, Random, SECOND, World, cost};
use firstlight_proto::clock::Stamp;
use scheduler_svc::{
    admission::{Budget, ByCause, Cause, Class, KvPromise, Policy, Refused, Request, Tenant, Tokens},
    replay::{Ending, Wire},
};

fn empty(budget: Budget) -> World {
    let wire = Wire {
        dispatch: Duration::from_micros(150),
        wake: Duration::from_micros(50),
        begun: Duration::from_micros(100),
        back: Duration::from_micros(100),
        turnaround: Duration::from_micros(30),
    };
    World::new(budget, cost(8_000.0, 20.0, 50.0), wire)
}

/// Bursts: for every second a rate between none and twelve requests, each with its own shape.
fn hour(mut each: impl FnMut(i64, Request)) {
    let mut random = Random(7);
    for second in 0..3_600 {
        let burst = if random.below(20) == 0 { 40 } else { 5 };
        let mut arrivals: Vec<i64> =
            (0..random.below(burst)).map(|_| second * SECOND + random.below(SECOND as u64) as i64).collect();
        arrivals.sort();
        for at in arrivals {
            let prompt =
                if random.below(10) == 0 { 1_000 + random.below(1_500) } else { 4 + random.below(200) };
            let request = Request {
                class: Class(random.below(3) as u16),
                tenant: Tenant(random.below(5) as u32),
                deadline: Some(Stamp::from_ns(at) + Duration::from_secs(20 + random.below(60))),
                ..Request::new(Tokens(prompt as u32), Tokens(8 + random.below(120) as u32))
            };
            each(at, request);
        }
    }
}

#[test]
fn an_hour_of_bursts_with_changing_policies_and_a_lost_engine_leaves_no_one_behind() {
    let base = Budget { max_active_requests: 48, max_pending: 400, ..Budget::default() };
    let mut world = empty(base.clone());
    let mut engine = world.attach(600);
    world.attach(400);
    let mut changes =
        (1..).map(|i| (i * 300 * SECOND, Policy::ALL[i as usize % Policy::ALL.len()])).peekable();
    let mut losses = (1..).map(|i| i * 700 * SECOND).peekable();
    let mut offered = 0;
    hour(|at, request| {
        while let Some((when, policy)) = changes.next_if(|(when, _)| *when <= at) {
            world.run_until(when);
            let optimistic = when / SECOND % 600 == 0;
            let kv_promise = if optimistic { KvPromise::Optimistic } else { KvPromise::Reserve };
            world.set_budget(Budget { policy, kv_promise, ..base.clone() });
        }
        while let Some(when) = losses.next_if(|when| *when <= at) {
            world.run_until(when);
            world.lose(engine);
            world.run_until(when + 5 * SECOND);
            engine = world.attach(600);
        }
        world.run_until(at.max(world.now()));
        world.offer(request);
        offered += 1;
    });
    world.run_out();

    assert!(offered > 8_000, "{offered} requests");
    assert_eq!(world.requests.len() + world.refused.len(), offered);
    assert!(world.refused.iter().all(|refused| matches!(refused, Refused::Full { .. })));
    let mut ends = [0; 3];
    for (number, story) in world.stories().enumerate() {
        let (_, request, queued) = world.requests[number];
        match story.end.unwrap() {
            (_, Ending::Finished) => {
                assert_eq!(story.tokens, request.max_new, "request {number} repeats or lacks tokens");
                ends[0] += 1;
            }
            (_, Ending::TurnedAway(_)) => {
                assert_eq!(
                    story.tokens,
                    Tokens(0),
                    "request {number} was refused after it had cost a prefill"
                );
                ends[1] += 1;
            }
            (at, Ending::DeadlinePassed) => {
                assert_eq!(Some(at), request.deadline, "request {number} was ended at another time");
                ends[2] += 1;
            }
            (_, Ending::Withdrawn) => panic!("no one withdrew request {number}"),
        }
        if let Some((admitted, waited)) = world.first_admission(number) {
            let lost = waited.engine_lost + waited.preempted;
            assert_eq!(waited.by_cause.total() + lost, admitted - queued);
        }
    }
    assert!(ends[0] > 100 * (ends[1] + ends[2]), "finished, turned away, too late: {ends:?}");
    let replay = world.replay();
    let gauges = replay.core().gauges(replay.now());
    assert_eq!((gauges.pending, gauges.active, replay.in_flight()), (0, 0, 0));
    let held: usize = gauges.engines.iter().map(|state| replay.blocks_held(state.engine)).sum();
    assert_eq!(held, 0, "blocks that no one holds are not free");
}

/// A burst of equal requests under a budget; the mean wait by cause.
fn burst(budget: Budget, kv_blocks: u32, tenants: u32) -> ByCause<i64> {
    let mut world = empty(budget);
    world.attach(kv_blocks);
    for i in 0..64 {
        world.run_until(i64::from(i) * 10_000);
        let tenant = Tenant(i % tenants);
        world.offer(Request { tenant, ..Request::new(Tokens(100), Tokens(20)) });
    }
    world.run_out();
    let mut mean = ByCause::default();
    for number in 0..world.requests.len() {
        assert!(world.story(number).finished());
        for (cause, ns) in world.first_admission(number).unwrap().1.by_cause.iter() {
            mean[cause] += ns / world.requests.len() as i64;
        }
    }
    mean
}

/// Raising the limit that binds removes its cause and lowers the wait.
fn raising_helps(cause: Cause, before: ByCause<i64>, after: ByCause<i64>) {
    let share = |wait: ByCause<i64>| wait[cause] as f64 / wait.total().max(1) as f64;
    assert!(share(before) > 0.5, "{cause:?} does not bind: {before:?}");
    assert!(after[cause] * 10 <= before[cause], "{cause:?} stays: {before:?} → {after:?}");
    assert!(after.total() < before.total(), "the wait is no shorter: {before:?} → {after:?}");
}

/// Nothing binds.
fn ample() -> Budget {
    Budget {
        prefill_max_batch_size: 1_000,
        prefill_max_tokens: Tokens(100_000),
        step_prefill_tokens: Tokens(100_000),
        max_active_requests: 1_000,
        ..Budget::default()
    }
}

#[test]
fn raising_max_active_requests_removes_max_active() {
    let tight = Budget { max_active_requests: 4, ..ample() };
    raising_helps(Cause::MaxActive, burst(tight, 4_096, 1), burst(ample(), 4_096, 1));
}

#[test]
fn raising_kv_blocks_removes_kv_blocks() {
    raising_helps(Cause::KvBlocks, burst(ample(), 32, 1), burst(ample(), 4_096, 1));
}

#[test]
fn raising_prefill_max_tokens_removes_token_budget() {
    let tight = Budget { prefill_max_tokens: Tokens(200), ..ample() };
    raising_helps(Cause::TokenBudget, burst(tight, 4_096, 1), burst(ample(), 4_096, 1));
}

#[test]
fn raising_prefill_max_batch_size_removes_batch_size() {
    let tight = Budget { prefill_max_batch_size: 2, ..ample() };
    raising_helps(Cause::BatchSize, burst(tight, 4_096, 1), burst(ample(), 4_096, 1));
}

#[test]
fn under_optimistic_a_prompt_taken_in_chunks_keeps_the_blocks_it_was_promised() {
    let budget = Budget {
        kv_promise: KvPromise::Optimistic,
        kv_margin: Tokens(16),
        step_prefill_tokens: Tokens(64),
        ..Budget::default()
    };
    let mut world = empty(budget);
    // A prompt takes 16 blocks, in four chunks: there is never room for both.
    world.attach(24);
    for _ in 0..2 {
        world.offer(Request::new(Tokens(256), Tokens(8)));
    }
    world.run_out();
    assert!(world.stories().all(|story| story.finished() && story.preempted == 0));
    let (admitted, waited) = world.first_admission(1).unwrap();
    assert_eq!(admitted, world.story(0).end.unwrap().0.ns(), "when the first has left");
    let short = waited.by_cause[Cause::KvBlocks];
    assert!(short * 10 > waited.by_cause.total() * 9, "{waited:?}");
}

#[test]
fn adaptive_holds_the_itl_target_that_fifo_misses() {
    let target = 25 * MS;
    let gaps_over = |policy| {
        let budget = Budget {
            policy,
            target_itl: Duration::from_nanos(target as u64),
            max_active_requests: 64,
            ..Budget::default()
        };
        let mut world = empty(budget);
        world.attach(20_000);
        let mut random = Random(3);
        for i in 0..3_000 {
            world.run_until(i * 100 * MS);
            let prompt = 400 + random.below(1_600) as u32;
            world.offer(Request::new(Tokens(prompt), Tokens(40)));
        }
        world.run_out();
        let replay = world.replay();
        (world.long_gaps(target), replay.core().gauges(replay.now()).controller)
    };
    let (fifo, _) = gaps_over(Policy::Fifo);
    let (adaptive, state) = gaps_over(Policy::Adaptive);
    assert!(fifo > 0.05, "fifo holds the target by itself: {fifo}");
    assert!(adaptive < 0.02, "{adaptive} of the gaps are over the target; {state:?}");
}
