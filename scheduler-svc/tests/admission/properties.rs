//! Promises of the core that hold for any traffic: bounds on starvation, KV within the pool, order.

use std::time::Duration;

use super::world::{MS, World, cost};
use firstlight_sim::cost::CostModel;
use proptest::prelude::*;
use scheduler_svc::{
    admission::{Budget, Class, KvPromise, Policy, Request, Tenant, Tokens},
    replay::Wire,
};

/// Engines at the scheduler's elbow: orders are compared, and no message may change them on its way.
fn empty(budget: Budget) -> World {
    let costs: CostModel = cost(5_000.0, 10.0, 20.0);
    World::new(budget, costs, Wire::default())
}

/// Arrivals: time since the last in ms, prompt, tokens to generate, and a number for class or tenant.
fn arrivals(most: usize) -> impl Strategy<Value = Vec<(u8, u16, u8, u8)>> {
    proptest::collection::vec((0_u8..20, 1_u16..400, 1_u8..60, 0_u8..4), 1..most)
}

fn world(budget: Budget, kv_blocks: u32, arrivals: &[(u8, u16, u8, u8)]) -> World {
    let mut world = empty(budget);
    world.attach(kv_blocks);
    let mut at = 0;
    for (gap, prompt, max_new, whose) in arrivals {
        at += i64::from(*gap) * MS;
        world.run_until(at.max(world.now()));
        world.offer(Request {
            class: Class(u16::from(*whose)),
            tenant: Tenant(u32::from(*whose)),
            ..Request::new(Tokens(u32::from(*prompt)), Tokens(u32::from(*max_new)))
        });
    }
    world.run_out();
    world
}

/// Place of each request's first admission, and the number of the round.
fn admissions(world: &World) -> Vec<usize> {
    let mut round_of = vec![usize::MAX; world.requests.len()];
    for (round, (_, batch)) in world.rounds().iter().enumerate() {
        for number in batch {
            round_of[*number] = round_of[*number].min(round);
        }
    }
    round_of
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn under_pack_a_head_is_passed_over_in_fewer_rounds_than_force_fifo_every(
        arrivals in arrivals(80),
        every in 1_u32..6,
        tokens in 50_u32..500,
    ) {
        let budget = Budget {
            policy: Policy::Pack,
            prefill_max_tokens: Tokens(tokens),
            force_fifo_every: every,
            max_overtaking_age: Duration::ZERO,
            ..Budget::default()
        };
        let world = world(budget, 4_096, &arrivals);
        let (round_of, rounds) = (admissions(&world), world.rounds());
        // From the round in which everyone before it had gone, at most `every` rounds until it goes too.
        for number in 0..round_of.len() {
            let head_from = round_of[..number].iter().max().map_or(0, |last| last + 1);
            let queued_from = rounds.partition_point(|(at, _)| *at < world.requests[number].2);
            let from = head_from.max(queued_from);
            prop_assert!(
                round_of[number] < from + every as usize || round_of[number] <= head_from,
                "request {number} could go from round {from} on, went in {}", round_of[number]
            );
        }
    }

    #[test]
    fn under_priority_no_one_is_overtaken_by_who_comes_later_than_the_weights_allow(
        arrivals in arrivals(80),
        aging in 1_u64..40,
    ) {
        let weights = [1_u32, 3, 7, 10];
        let budget = Budget {
            policy: Policy::Priority,
            prefill_max_batch_size: 2,
            class_weights: weights.iter().enumerate().map(|(c, w)| (Class(c as u16), *w)).collect(),
            aging: Duration::from_millis(aging),
            ..Budget::default()
        };
        let world = world(budget, 4_096, &arrivals);
        let round_of = admissions(&world);
        let weight = |n: usize| i64::from(weights[world.requests[n].1.class.0 as usize]);
        for (a, b) in (0..round_of.len()).flat_map(|a| (a + 1..round_of.len()).map(move |b| (a, b))) {
            let lead = world.requests[b].2 - world.requests[a].2;
            let allowed = (weight(b) - weight(a)).max(0) * aging as i64 * MS;
            prop_assert!(
                round_of[a] <= round_of[b] || lead <= allowed,
                "{b} came {lead} ns after {a} and overtook it; {allowed} ns are allowed"
            );
        }
    }

    #[test]
    fn under_fair_a_flood_delays_another_tenant_by_one_round_at_most(
        flood in 5_usize..60,
        after_ms in 0_i64..200,
        places in 1_u32..5,
    ) {
        let budget =
            Budget { policy: Policy::Fair, prefill_max_batch_size: places, ..Budget::default() };
        let mut world = empty(budget);
        world.attach(4_096);
        for _ in 0..flood {
            world.offer(Request { tenant: Tenant(1), ..Request::new(Tokens(64), Tokens(30)) });
        }
        world.run_until(after_ms * MS);
        let rounds_before = world.rounds().len();
        let other = world.offer(Request { tenant: Tenant(2), ..Request::new(Tokens(64), Tokens(30)) }).unwrap();
        world.run_out();
        let round = admissions(&world)[other];
        prop_assert!(round <= rounds_before + 1, "{rounds_before} rounds before it came, admitted in {round}");
    }

    #[test]
    fn reserve_never_preempts(arrivals in arrivals(60), kv_blocks in 30_u32..120) {
        let budget = Budget { kv_promise: KvPromise::Reserve, ..Budget::default() };
        let world = world(budget, kv_blocks, &arrivals);
        prop_assert!(world.stories().all(|story| story.preempted == 0 && story.finished()));
    }

    #[test]
    fn under_optimistic_everyone_finishes(
        arrivals in arrivals(60),
        kv_blocks in 30_u32..120,
        margin in 1_u32..40,
    ) {
        let budget =
            Budget { kv_promise: KvPromise::Optimistic, kv_margin: Tokens(margin), ..Budget::default() };
        let world = world(budget, kv_blocks, &arrivals);
        for (story, (_, request, _)) in world.stories().zip(&world.requests) {
            prop_assert!(story.finished(), "{story:?}");
            prop_assert_eq!(story.tokens, request.max_new);
        }
    }

    #[test]
    fn refused_requests_change_no_one_elses_order(
        arrivals in arrivals(60),
        policy in 0_usize..6,
        refused_after in proptest::collection::vec(0_usize..60, 0..10),
    ) {
        let budget = Budget { policy: Policy::ALL[policy], prefill_max_batch_size: 2, ..Budget::default() };
        let without = world(budget.clone(), 200, &arrivals);
        let mut with = empty(budget);
        with.attach(200);
        let mut at = 0;
        for (i, (gap, prompt, max_new, whose)) in arrivals.iter().enumerate() {
            at += i64::from(*gap) * MS;
            with.run_until(at.max(with.now()));
            with.offer(Request {
                class: Class(u16::from(*whose)),
                tenant: Tenant(u32::from(*whose)),
                ..Request::new(Tokens(u32::from(*prompt)), Tokens(u32::from(*max_new)))
            });
            if refused_after.contains(&i) {
                prop_assert_eq!(with.offer(Request::new(Tokens(4_000), Tokens(500))), None);
            }
        }
        with.run_out();
        prop_assert_eq!(with.rounds(), without.rounds());
    }
}
