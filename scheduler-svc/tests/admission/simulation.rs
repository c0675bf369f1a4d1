//! The core under whole days of traffic, in virtual time.

use std::time::Duration;

use super::world::{Cost, MS, Random, SECOND, World};
use firstlight_proto::clock::Stamp;
use scheduler_svc::admission::{
    Budget, ByCause, Cause, Class, KvPromise, Policy, Refused, Request, Tenant, Tokens,
};

const COST: Cost = Cost { step: 8 * MS, per_prompt_token: 20_000, per_row: 50_000 };

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
    let mut world = World::new(base.clone(), COST);
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
        world.run_until(at.max(world.now));
        world.offer(request);
        offered += 1;
    });
    world.run_until(2 * 3_600 * SECOND);

    assert!(offered > 8_000, "{offered} requests");
    assert_eq!(world.stories.len() + world.refused.len(), offered);
    assert!(world.refused.iter().all(|refused| matches!(refused, Refused::Full { .. })));
    for (number, story) in world.stories.iter().enumerate() {
        let request = story.request.unwrap();
        if story.turned_away {
            assert_eq!(story.tokens, 0, "request {number} was refused after it had cost a prefill");
            continue;
        }
        assert!(story.finished.is_some(), "request {number} never finished: {story:?}");
        assert_eq!(story.tokens, request.max_new.0, "request {number} repeats or lacks tokens");
        let (admitted, waited) = story.first_admission.unwrap();
        assert_eq!(waited.by_cause.total() + waited.engine_lost + waited.preempted, admitted - story.queued);
    }
    assert!(world.most_allocated <= 600, "{} blocks allocated", world.most_allocated);
    let gauges = world.core.gauges(Stamp::from_ns(world.now));
    assert_eq!((gauges.pending, gauges.active), (0, 0));
}

/// A burst of equal requests under a budget; the mean wait by cause.
fn burst(budget: Budget, kv_blocks: u32, tenants: u32) -> ByCause<i64> {
    let mut world = World::new(budget, COST);
    world.attach(kv_blocks);
    for i in 0..64 {
        world.run_until(i64::from(i) * 10_000);
        let tenant = Tenant(i % tenants);
        world.offer(Request { tenant, ..Request::new(Tokens(100), Tokens(20)) });
    }
    world.run_until(600 * SECOND);
    let mut mean = ByCause::default();
    for story in &world.stories {
        assert!(story.finished.is_some());
        for (cause, ns) in story.first_admission.unwrap().1.by_cause.iter() {
            mean[cause] += ns / world.stories.len() as i64;
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
fn adaptive_holds_the_itl_target_that_fifo_misses() {
    let target = 25 * MS;
    let gaps_over = |policy| {
        let budget = Budget {
            policy,
            target_itl: Duration::from_nanos(target as u64),
            max_active_requests: 64,
            ..Budget::default()
        };
        let mut world = World::new(budget, COST);
        world.attach(20_000);
        let mut random = Random(3);
        for i in 0..3_000 {
            world.run_until(i * 100 * MS);
            let prompt = 400 + random.below(1_600) as u32;
            world.offer(Request::new(Tokens(prompt), Tokens(40)));
        }
        world.run_until(3_000 * SECOND);
        let state = world.core.gauges(Stamp::from_ns(world.now)).controller;
        (world.long_steps(target), state)
    };
    let (fifo, _) = gaps_over(Policy::Fifo);
    let (adaptive, state) = gaps_over(Policy::Adaptive);
    assert!(fifo > 0.05, "fifo holds the target by itself: {fifo}");
    assert!(adaptive < 0.02, "{adaptive} of the gaps are over the target; {state:?}");
}
