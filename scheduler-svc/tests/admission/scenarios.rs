//! The admission core through its public face: short stories, one promise each.

use firstlight_proto::{
    clock::Stamp,
    error::{Failure, Kind},
};
use scheduler_svc::admission::{
    Admission, Blocks, Budget, Cause, End, EngineId, Forward, Geometry, Key, Policy, RETURN_GRACE, Refused,
    Remedy, Report, Request, RequestState, Round, Row, Step, Tenant, Tokens, Withdrawn,
};

const ENGINE: EngineId = EngineId(1);

fn at(ns: i64) -> Stamp {
    Stamp::from_ns(ns)
}

fn geometry(kv_blocks: u32) -> Geometry {
    Geometry {
        context: Tokens(4096),
        block_size: Tokens(16),
        kv_blocks: Blocks(kv_blocks),
        free_blocks: Blocks(kv_blocks),
        max_sequences: 1024,
    }
}

fn core(budget: Budget) -> Admission {
    let mut core = Admission::new(budget, at(0)).unwrap();
    core.observe(at(0), Report::Attached { engine: ENGINE, geometry: geometry(1024) });
    core
}

fn offer(core: &mut Admission, ns: i64, prompt: u32) -> Key {
    core.offer(at(ns), Request::new(Tokens(prompt), Tokens(16))).unwrap().key
}

fn offer_of(core: &mut Admission, ns: i64, tenant: u32) -> Key {
    let request = Request { tenant: Tenant(tenant), ..Request::new(Tokens(8), Tokens(8)) };
    core.offer(at(ns), request).unwrap().key
}

fn begun(core: &mut Admission, ns: i64, round: &Round) {
    core.observe(at(ns), Report::Begun { engine: round.engine, seq: round.seq });
}

fn end(core: &mut Admission, ns: i64, key: Key, how: End, tokens: u32) {
    let row = Row { key, tokens: Tokens(tokens), end: Some(how) };
    let step =
        Step { engine: ENGINE, rows: vec![row], free_blocks: Blocks(1024), last_seq: 99, forward: None };
    core.observe(at(ns), Report::Step(step));
}

fn keys(round: &Round) -> Vec<Key> {
    round.batch.iter().map(|admitted| admitted.key).collect()
}

#[test]
fn a_burst_is_admitted_in_order_and_its_wait_is_charged_to_the_batch_size() {
    let mut core = core(Budget { prefill_max_batch_size: 2, ..Budget::default() });
    let all: Vec<_> = (0..5).map(|_| offer(&mut core, 10, 8)).collect();
    let first = core.plan(at(10)).unwrap();
    assert_eq!((keys(&first), first.bound_by), (all[..2].to_vec(), Some(Cause::BatchSize)));
    assert_eq!(core.plan(at(10)), None);
    begun(&mut core, 30, &first);
    let second = core.plan(at(30)).unwrap();
    assert_eq!(keys(&second), all[2..4]);
    for admitted in &second.batch {
        assert_eq!(admitted.waited.by_cause[Cause::BatchSize], 20);
        assert_eq!(admitted.waited.by_cause.total(), 20);
    }
    // The third was at the head from the first round on, the fourth only when the third was taken.
    assert_eq!([second.batch[0].waited.behind, second.batch[1].waited.behind], [0, 20]);
}

#[test]
fn a_request_that_comes_while_no_engine_has_credit_is_charged_engine_busy_until_one_has() {
    let mut core = core(Budget { max_active_requests: 1, ..Budget::default() });
    let running = offer(&mut core, 0, 8);
    let first = core.plan(at(0)).unwrap();
    let late = offer(&mut core, 5, 8);
    assert_eq!(core.plan(at(5)), None);
    begun(&mut core, 20, &first);
    assert_eq!(core.plan(at(20)), None);
    end(&mut core, 50, running, End::Finished, 1);
    let second = core.plan(at(50)).unwrap();
    assert_eq!(keys(&second), [late]);
    let waited = second.batch[0].waited.by_cause;
    assert_eq!((waited[Cause::EngineBusy], waited[Cause::MaxActive], waited.total()), (15, 30, 45));
}

#[test]
fn a_lost_engine_sends_its_requests_back_to_the_front_in_order_and_all_wait_for_an_engine() {
    let mut core = core(Budget { max_active_requests: 2, ..Budget::default() });
    let all: Vec<_> = (0..3).map(|_| offer(&mut core, 0, 8)).collect();
    core.plan(at(0)).unwrap();
    let back = core.observe(at(10), Report::Lost { engine: ENGINE });
    assert_eq!(back.iter().map(|r| r.key).collect::<Vec<_>>(), all[..2]);
    assert_eq!(core.plan(at(10)), None);
    let engine = EngineId(2);
    core.observe(at(25), Report::Attached { engine, geometry: geometry(64) });
    let round = core.plan(at(25)).unwrap();
    assert_eq!(keys(&round), all[..2]);
    let waited = round.batch[0].waited;
    assert_eq!((waited.engine_lost, waited.by_cause[Cause::NoEngine], waited.by_cause.total()), (10, 15, 15));
    let third = core.waited(at(30), all[2]).unwrap().by_cause;
    // Admitted in a batch of 2 of 2: at 0 its cut was `max_active`, from 10 to 25 no engine, then again.
    assert_eq!((third[Cause::MaxActive], third[Cause::NoEngine], third.total()), (15, 15, 30));
}

#[test]
fn while_every_engine_drains_requests_wait_for_another_and_what_runs_goes_on() {
    let mut core = core(Budget::default());
    let running = offer(&mut core, 0, 8);
    let round = core.plan(at(0)).unwrap();
    begun(&mut core, 5, &round);
    core.observe(at(10), Report::Draining { engine: ENGINE });
    let waiting = offer(&mut core, 10, 8);
    assert_eq!(core.plan(at(10)), None);
    end(&mut core, 20, running, End::Finished, 1);
    assert_eq!(core.plan(at(20)), None, "room is no credit while it drains");
    let engine = EngineId(2);
    core.observe(at(30), Report::Attached { engine, geometry: geometry(64) });
    let round = core.plan(at(30)).unwrap();
    assert_eq!((round.engine, keys(&round)), (engine, vec![waiting]));
    assert_eq!(round.batch[0].waited.by_cause[Cause::NoEngine], 20);
}

#[test]
fn what_only_an_engine_that_drains_could_hold_blocks_no_one() {
    let mut core = core(Budget::default());
    core.observe(at(0), Report::Draining { engine: ENGINE });
    let engine = EngineId(2);
    core.observe(at(0), Report::Attached { engine, geometry: geometry(4) });
    let large = offer(&mut core, 0, 100);
    let small = offer(&mut core, 0, 8);
    assert_eq!(keys(&core.plan(at(0)).unwrap()), [small]);
    let given_up = at(0) + RETURN_GRACE;
    let away = core.turn_away(given_up);
    assert_eq!((away.len(), away[0].key), (1, large));
    assert_eq!(away[0].why, Refused::EnginesGone);
    assert_eq!(away[0].waited.by_cause[Cause::NoEngine], given_up.since(at(0)), "none like it was started");
}

#[test]
fn what_can_never_fit_is_refused_with_the_smallest_change_that_would_admit_it() {
    let mut core = Admission::new(Budget::default(), at(0)).unwrap();
    core.observe(at(0), Report::Attached { engine: ENGINE, geometry: geometry(4) });
    let Err(Refused::NeverFits(why)) = core.offer(at(0), Request::new(Tokens(60), Tokens(5))) else {
        panic!("65 positions in 64");
    };
    assert_eq!((why.limit, why.have, why.need), ("kv_blocks", 4, 5));
    assert_eq!(why.remedy, Remedy::LowerMaxNewTo(Tokens(4)));
    assert!(core.offer(at(0), Request::new(Tokens(60), Tokens(4))).is_ok());
    let Err(Refused::NeverFits(why)) = core.offer(at(0), Request::new(Tokens(70), Tokens(1))) else {
        panic!("71 positions in 64");
    };
    assert_eq!(why.remedy, Remedy::ShortenPromptBy(Tokens(7)));
    assert!(core.offer(at(0), Request::new(Tokens(63), Tokens(1))).is_ok());
}

#[test]
fn a_request_that_no_engine_attached_later_can_hold_is_turned_away_and_blocks_no_one() {
    let mut core = Admission::new(Budget::default(), at(0)).unwrap();
    let large = offer(&mut core, 0, 1000);
    let small = offer(&mut core, 0, 8);
    core.observe(at(5), Report::Attached { engine: ENGINE, geometry: geometry(4) });
    assert_eq!(keys(&core.plan(at(5)).unwrap()), [small]);
    let away = core.turn_away(at(5));
    assert_eq!((away.len(), away[0].key), (1, large));
    assert!(matches!(away[0].why, Refused::NeverFits(_)));
    assert_eq!(away[0].waited.by_cause[Cause::NoEngine], 5);
}

/// A core whose large engine is lost at 10 ns; a small one is left. The request that only the large one could hold.
fn core_that_lost_its_large_engine() -> (Admission, Key) {
    let mut core = core(Budget::default());
    let large = offer(&mut core, 0, 1000);
    let round = core.plan(at(0)).unwrap();
    begun(&mut core, 1, &round);
    let row = Row { key: large, tokens: Tokens(3), end: None };
    let step = Step { engine: ENGINE, rows: vec![row], free_blocks: Blocks(900), last_seq: 1, forward: None };
    core.observe(at(2), Report::Step(step));
    core.observe(at(3), Report::Attached { engine: EngineId(2), geometry: geometry(4) });
    core.observe(at(10), Report::Lost { engine: ENGINE });
    (core, large)
}

#[test]
fn a_request_whose_engine_may_come_back_waits_for_it_in_nobodys_way() {
    let (mut core, large) = core_that_lost_its_large_engine();
    let small = offer(&mut core, 10, 8);
    let round = core.plan(at(10)).unwrap();
    assert_eq!(keys(&round), [small]);
    begun(&mut core, 12, &round);
    // Another that only the lost engine could hold may wait as well.
    let another = offer(&mut core, 15, 1000);
    assert_eq!((core.plan(at(15)), core.turn_away(at(15))), (None, vec![]));
    let aside = core.dump(at(15)).lanes;
    assert_eq!((aside.len(), aside[0].pending, aside[0].cut), (1, 2, Cause::NoEngine));

    core.observe(at(40), Report::Attached { engine: EngineId(3), geometry: geometry(1024) });
    let round = core.plan(at(40)).unwrap();
    assert_eq!((round.engine, keys(&round)), (EngineId(3), vec![large, another]));
    assert_eq!(round.batch[0].generated, Tokens(3));
    let waits = [0, 1].map(|i| round.batch[i].waited.by_cause);
    assert_eq!(waits.map(|by_cause| by_cause[Cause::NoEngine]), [30, 25]);
    assert_eq!(waits.map(|by_cause| by_cause.total()), [30, 25]);
    let explanation = core.explain(at(50), another).unwrap();
    assert!(explanation.complete && explanation.state == RequestState::Active);
    let periods: Vec<_> = explanation.periods.iter().map(|p| (p.cause, p.from, p.to)).collect();
    assert_eq!(periods, [(Cause::NoEngine, at(15), at(40))]);
}

#[test]
fn a_request_whose_engine_does_not_come_back_in_time_may_be_tried_again_elsewhere() {
    let (mut core, large) = core_that_lost_its_large_engine();
    assert_eq!((core.plan(at(10)), core.turn_away(at(10))), (None, vec![]));
    let until = at(10) + RETURN_GRACE;
    assert_eq!(core.next_expiry(), Some(until));
    assert_eq!(core.turn_away(at(until.ns() - 1)), []);
    let away = core.turn_away(until);
    assert_eq!((away.len(), away[0].key, away[0].why), (1, large, Refused::EnginesGone));
    assert_eq!(Failure::from(away[0].why).kind(), Kind::Unavailable);
    assert_eq!(core.next_expiry(), None);
    // From now on it is the engines that are left which decide.
    let refused = core.offer(until, Request::new(Tokens(1000), Tokens(16))).unwrap_err();
    assert!(matches!(refused, Refused::NeverFits(_)));
}

#[test]
fn a_request_set_aside_can_be_withdrawn_and_comes_back_to_the_queue_when_all_engines_are_gone() {
    let (mut core, large) = core_that_lost_its_large_engine();
    assert_eq!((core.plan(at(10)), core.turn_away(at(10))), (None, vec![]));
    core.observe(at(20), Report::Lost { engine: EngineId(2) });
    let late = at(20) + 2 * RETURN_GRACE;
    assert_eq!((core.plan(late), core.turn_away(late)), (None, vec![]));
    let Withdrawn::Pending(waited) = core.withdraw(late, large) else { panic!("it is pending") };
    assert_eq!(waited.by_cause[Cause::NoEngine], late.since(at(10)));
    assert_eq!(core.gauges(late).pending, 0);
}

#[test]
fn a_full_queue_refuses_until_someone_leaves() {
    let mut core = Admission::new(Budget { max_pending: 2, ..Budget::default() }, at(0)).unwrap();
    let first = offer(&mut core, 0, 8);
    offer(&mut core, 0, 8);
    let refused = core.offer(at(1), Request::new(Tokens(8), Tokens(8))).unwrap_err();
    assert!(matches!(refused, Refused::Full { pending: 2, .. }));
    assert!(matches!(core.withdraw(at(2), first), Withdrawn::Pending(_)));
    assert!(core.offer(at(3), Request::new(Tokens(8), Tokens(8))).is_ok());
}

#[test]
fn a_refused_client_is_sent_away_for_one_place_in_the_drain_however_often_the_queue_was_looked_at() {
    let mut core = core(Budget { max_active_requests: 1, max_pending: 1, ..Budget::default() });
    let mut now = 0;
    for _ in 0..80 {
        let key = offer(&mut core, now, 8);
        let round = core.plan(at(now)).unwrap();
        begun(&mut core, now, &round);
        end(&mut core, now, key, End::Finished, 1);
        now += 100_000_000;
    }
    offer(&mut core, now, 8);
    core.plan(at(now)).unwrap();
    offer(&mut core, now, 8);
    (0..1_000).for_each(|_| assert!(core.is_full()));
    let Err(Refused::Full { retry_after, .. }) = core.offer(at(now), Request::new(Tokens(8), Tokens(8)))
    else {
        panic!("one waits and one may");
    };
    assert!((90..=120).contains(&retry_after.as_millis()), "about 10 leave per second: {retry_after:?}");
}

#[test]
fn a_withdrawn_active_request_holds_its_place_until_its_row_ends() {
    let mut core = core(Budget { max_active_requests: 1, ..Budget::default() });
    let first = offer(&mut core, 0, 8);
    let round = core.plan(at(0)).unwrap();
    begun(&mut core, 1, &round);
    let second = offer(&mut core, 1, 8);
    assert_eq!(core.withdraw(at(2), first), Withdrawn::Active(ENGINE));
    assert_eq!(core.plan(at(2)), None);
    end(&mut core, 3, first, End::Finished, 0);
    assert_eq!(keys(&core.plan(at(3)).unwrap()), [second]);
    assert_eq!(core.withdraw(at(4), first), Withdrawn::Unknown);
}

#[test]
fn a_preempted_request_is_next_with_its_tokens_kept() {
    let mut core = core(Budget { max_active_requests: 1, ..Budget::default() });
    let first = offer(&mut core, 0, 8);
    let round = core.plan(at(0)).unwrap();
    begun(&mut core, 1, &round);
    offer(&mut core, 1, 8);
    end(&mut core, 9, first, End::Preempted, 3);
    let again = core.plan(at(9)).unwrap();
    assert_eq!(keys(&again), [first]);
    assert_eq!((again.batch[0].generated, again.batch[0].waited.by_cause.total()), (Tokens(3), 0));
}

#[test]
fn a_round_whose_requests_are_all_gone_needs_not_begin_to_give_its_credit_back() {
    let mut core = core(Budget { max_active_requests: 1, ..Budget::default() });
    let first = offer(&mut core, 0, 8);
    core.plan(at(0)).unwrap();
    let second = offer(&mut core, 0, 8);
    core.observe(at(5), Report::Rejected { key: first });
    assert_eq!(keys(&core.plan(at(5)).unwrap()), [second]);
}

#[test]
fn tenants_take_turns_however_many_requests_one_of_them_has() {
    let budget = Budget { policy: Policy::Fair, prefill_max_batch_size: 1, ..Budget::default() };
    let mut core = core(budget);
    let flood: Vec<_> = (0..50).map(|_| offer_of(&mut core, 0, 1)).collect();
    let first = core.plan(at(0)).unwrap();
    assert_eq!(keys(&first), flood[..1]);
    let other = offer_of(&mut core, 5, 2);
    begun(&mut core, 10, &first);
    let next = core.plan(at(10)).unwrap();
    assert_eq!(keys(&next), [other]);
    let passed_over = core.waited(at(12), flood[1]).unwrap().by_cause;
    assert_eq!((passed_over[Cause::BatchSize], passed_over[Cause::FairShare]), (10, 2));
}

#[test]
fn what_the_adaptive_controller_counts_never_falls_whatever_the_budget_becomes() {
    let adaptive =
        |chunk| Budget { policy: Policy::Adaptive, step_prefill_tokens: Tokens(chunk), ..Budget::default() };
    let mut core = core(adaptive(2048));
    let forward = Forward { start: at(0), end: at(90_000_000), prefill_tokens: Tokens(9), decode_rows: 1 };
    let step =
        Step { engine: ENGINE, rows: vec![], free_blocks: Blocks(9), last_seq: 0, forward: Some(forward) };
    core.observe(at(1), Report::Step(step));
    let counted =
        |core: &Admission| (core.gauges(at(2)).controller.gaps, core.gauges(at(2)).controller.over_target);
    assert_eq!(counted(&core), (1, 1));
    for budget in [adaptive(1024), Budget::default(), adaptive(2048)] {
        core.set_budget(at(2), budget).unwrap();
        assert_eq!(counted(&core), (1, 1));
    }
}

#[test]
fn the_dump_tells_of_each_lane_its_length_its_cut_and_its_head() {
    let mut core = core(Budget { policy: Policy::Fair, max_active_requests: 1, ..Budget::default() });
    let first = offer_of(&mut core, 0, 7);
    assert_eq!(keys(&core.plan(at(0)).unwrap()), [first]);
    let head = offer_of(&mut core, 10, 7);
    offer_of(&mut core, 20, 7);
    let other = offer_of(&mut core, 30, 8);
    assert!(core.plan(at(30)).is_none());

    let dump = core.dump(at(50));
    let mut lanes: Vec<_> = dump
        .lanes
        .iter()
        .map(|lane| (lane.head, lane.pending, lane.cut, lane.waited.by_cause.total()))
        .collect();
    lanes.sort();
    assert_eq!(lanes, [(head, 2, Cause::EngineBusy, 40), (other, 1, Cause::EngineBusy, 20)]);
    assert_eq!((dump.gauges.pending, dump.gauges.active, dump.liveness.budget_free), (3, 1, false));
}
