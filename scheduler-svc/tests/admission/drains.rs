//! An engine that drains under load, in virtual time: what it has not begun goes elsewhere, once.

use std::time::Duration;

use proptest::prelude::*;
use scheduler_svc::{
    admission::{Budget, EngineId, KvPromise, Request, Tokens},
    replay::Wire,
};

use super::world::{MS, World, cost};

/// Hand-overs that leave rounds on their way when the drain begins.
fn wire() -> Wire {
    Wire {
        dispatch: Duration::from_millis(3),
        begun: Duration::from_millis(3),
        back: Duration::from_millis(3),
        ..Wire::default()
    }
}

/// A stream of requests to two engines, one of which drains at `at_ms`; rounds that were sent by then.
fn drained(budget: Budget, gap_ms: i64, requests: i64, at_ms: i64) -> (World, EngineId, usize) {
    let mut world = World::new(budget, cost(20_000.0, 50.0, 50.0), wire());
    let (leaving, _) = (world.attach(600), world.attach(600));
    let mut before = None;
    for i in 0..requests {
        if i * gap_ms >= at_ms && before.is_none() {
            world.run_until(at_ms * MS);
            before = Some(world.rounds().len());
            world.drain(leaving);
        }
        world.run_until(i * gap_ms * MS);
        world.offer(Request::new(Tokens(40 + 40 * (i as u32 % 7)), Tokens(30)));
    }
    world.run_out();
    let all = world.rounds().len();
    (world, leaving, before.unwrap_or(all))
}

#[test]
fn an_engine_that_drains_gets_no_more_rounds_and_what_it_had_not_begun_goes_to_the_other() {
    let (world, leaving, before) = drained(Budget::default(), 5, 200, 500);
    assert!(world.engines()[..before].contains(&leaving) && !world.engines()[before..].contains(&leaving));
    let handed_back = world.stories().filter(|story| story.preempted > 0).count();
    assert!(handed_back > 0, "everything had begun");
    assert!(world.stories().all(|story| story.finished() && story.preempted <= 1 && story.lost == 0));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whenever it drains: everyone finishes, nobody goes back to it, and nothing is left in it.
    #[test]
    fn nothing_bounces_off_an_engine_that_drains(
        gap_ms in 1_i64..30,
        at_ms in 0_i64..1_000,
        ahead in 1_u32..4,
        chunk in 16_u32..400,
        optimistic: bool,
    ) {
        let budget = Budget {
            admit_ahead: ahead,
            step_prefill_tokens: Tokens(chunk),
            kv_promise: if optimistic { KvPromise::Optimistic } else { KvPromise::Reserve },
            ..Budget::default()
        };
        let (world, leaving, before) = drained(budget, gap_ms, 60, at_ms);
        prop_assert!(!world.engines()[before..].contains(&leaving));
        for story in world.stories() {
            prop_assert!(story.finished(), "{story:?}");
            prop_assert!(optimistic || story.preempted <= 1, "it bounced: {story:?}");
        }
        prop_assert_eq!(world.replay().blocks_held(leaving), 0);
        prop_assert_eq!(world.replay().in_flight(), 0);
    }
}
