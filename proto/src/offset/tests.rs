use proptest::prelude::*;

use super::*;

const MS: i64 = 1_000_000;
const SECOND: i64 = 1_000 * MS;

/// Two clocks of which the second is ahead by `ahead` at our time 0 and gains `drift` ppb, from our time `turn` on `then`.
#[derive(Clone, Copy, Debug)]
struct Clocks {
    ahead: i64,
    drift: i64,
    turn: i64,
    then: i64,
}

impl Clocks {
    /// The drift never changes.
    fn steady(ahead: i64, drift: i64) -> Self {
        Self { ahead, drift, turn: i64::MAX, then: drift }
    }

    fn theirs(self, ours: i64) -> Stamp {
        Stamp::from_ns(ours + self.offset(ours))
    }

    fn offset(self, ours: i64) -> i64 {
        let gained = |ns: i64, ppb: i64| (i128::from(ns) * i128::from(ppb) / 1_000_000_000) as i64;
        self.ahead
            + gained(ours.min(self.turn), self.drift)
            + gained(ours.saturating_sub(self.turn).max(0), self.then)
    }

    /// A probe sent at `at`; the ways there and back take `there` and `back`, the answer `answer` ns.
    fn probe(self, at: i64, there: i64, answer: i64, back: i64) -> Probe {
        let (t2, t3, t4) = (at + there, at + there + answer, at + there + answer + back);
        Probe::new(Stamp::from_ns(at), self.theirs(t2), self.theirs(t3), Stamp::from_ns(t4)).unwrap()
    }
}

fn estimator() -> OffsetEstimator {
    OffsetEstimator::new(Duration::from_secs(600))
}

fn error(e: &OffsetEstimator, clocks: Clocks, at: i64) -> (i64, i64) {
    let o = e.estimate(Stamp::from_ns(at)).unwrap();
    ((o.offset_ns - clocks.offset(at)).abs(), o.bound_ns)
}

fn clocks() -> impl Strategy<Value = Clocks> {
    (-2_000 * SECOND..2_000 * SECOND, -450_000_i64..450_000)
        .prop_map(|(ahead, drift)| Clocks::steady(ahead, drift))
}

/// Probes one after the other: how much longer than at least the ways there and back take, the answer, and the pause.
fn ways() -> impl Strategy<Value = Vec<(i64, i64, i64, i64)>> {
    prop::collection::vec((0..5 * MS, 0..5 * MS, 1_000..2 * MS, 1..3 * SECOND), 1..200)
}

/// Checks the estimate after each pause, and at `ask` when all is known.
fn is_always_inside(
    clocks: Clocks,
    (there, back): (i64, i64),
    ways: &[(i64, i64, i64, i64)],
    ask: i64,
) -> Result<(), TestCaseError> {
    let mut e = estimator();
    let mut at = 0;
    for (jitter_there, jitter_back, answer, pause) in ways {
        e.probe(clocks.probe(at, there + jitter_there, *answer, back + jitter_back));
        at += pause;
        let (error, bound) = error(&e, clocks, at);
        prop_assert!(error <= bound, "error {error} outside bound {bound} at {at}");
    }
    let (error, bound) = error(&e, clocks, ask);
    prop_assert!(error <= bound, "error {error} outside bound {bound} when asked at {ask}");
    Ok(())
}

proptest! {
    #[test]
    fn the_true_offset_is_always_inside_the_bound(
        clocks in clocks(),
        there in 20_000..50 * MS,
        back in 20_000..50 * MS,
        ways in ways(),
        ask in -60 * SECOND..700 * SECOND,
    ) {
        is_always_inside(clocks, (there, back), &ways, ask)?;
    }

    #[test]
    fn the_true_offset_is_inside_the_bound_when_the_rate_changes_half_way(
        clocks in clocks(),
        step in prop_oneof![Just(100_000), Just(500_000)],
        there in 20_000..50 * MS,
        back in 20_000..50 * MS,
        ways in ways(),
        ask in -60 * SECOND..700 * SECOND,
    ) {
        let length: i64 = ways.iter().map(|(.., pause)| pause).sum();
        // Towards the other sign: neither rate alone is more than clocks are allowed.
        let then = clocks.drift - step * clocks.drift.signum();
        is_always_inside(Clocks { turn: length / 2, then, ..clocks }, (there, back), &ways, ask)?;
    }

    #[test]
    fn one_way_messages_only_ever_narrow_the_bound(
        clocks in clocks(),
        there in 20_000..50 * MS,
        back in 20_000..50 * MS,
        faster in 1_000..20_000_i64,
    ) {
        let mut e = estimator();
        e.probe(clocks.probe(0, there, 1_000, back));
        let (_, before) = error(&e, clocks, 0);
        e.received(clocks.theirs(-faster), Stamp::from_ns(0));
        e.sent(Stamp::from_ns(0), clocks.theirs(there));
        let (error, after) = error(&e, clocks, 0);
        prop_assert!(after < before && error <= after);
    }

    #[test]
    fn a_mapped_stamp_is_within_its_bound(clocks in clocks(), ours in 0..60 * SECOND) {
        let mut e = estimator();
        for i in 0..60 {
            e.probe(clocks.probe(i * SECOND, 150_000, 10_000, 90_000));
        }
        let mapped = e.to_ours(clocks.theirs(ours)).unwrap();
        prop_assert!(mapped.stamp.since(Stamp::from_ns(ours)).abs() <= mapped.bound_ns);
        prop_assert!(mapped.bound_ns < 2 * MS, "{}", mapped.bound_ns);
    }
}

#[test]
fn an_asymmetric_path_gives_an_honestly_wide_bound() {
    let clocks = Clocks::steady(1_000 * SECOND, 0);
    let mut e = estimator();
    for i in 0..100 {
        e.probe(clocks.probe(i * 10 * MS, 40 * MS, 50_000, MS));
    }
    let (error, bound) = error(&e, clocks, SECOND);
    assert!(error > 15 * MS, "the asymmetry shifts the estimate by about 19.5 ms, not {error} ns");
    assert!((20 * MS..21 * MS).contains(&bound), "half of the round trip, not {bound} ns");
}

#[test]
fn the_bound_is_half_the_round_trip_and_what_clocks_may_drift_apart_since() {
    for drift in [0, 200_000, -450_000] {
        let clocks = Clocks::steady(-5 * SECOND, drift);
        let mut e = estimator();
        for i in 0..100 {
            e.probe(clocks.probe(i * SECOND, 100_000, 10_000, 100_000));
        }
        for (at, most) in
            [(99 * SECOND, 101_000), (98 * SECOND + SECOND / 2, 351_000), (110 * SECOND, 5_601_000)]
        {
            let (error, bound) = error(&e, clocks, at);
            assert!(error <= bound && bound < most, "{error} ± {bound} at {at}");
        }
    }
}

#[test]
fn a_change_of_the_rate_leaves_the_bound_honest_and_narrow() {
    for (step, pause) in [(100_000, SECOND), (500_000, SECOND), (-500_000, 250 * MS)] {
        let clocks = Clocks { turn: 30 * SECOND, then: step, ..Clocks::steady(SECOND, 0) };
        let mut e = estimator();
        for i in 0..60 * SECOND / pause {
            e.probe(clocks.probe(i * pause, 100_000, 10_000, 100_000));
            let (error, bound) = error(&e, clocks, (i + 1) * pause);
            assert!(error <= bound, "{error} ± {bound} after {i} probes");
        }
        let (_, bound) = error(&e, clocks, 60 * SECOND);
        assert!(bound < MS, "{bound} ns 30 s after a change of {step} ppb");
    }
}

#[test]
fn a_clock_that_was_set_is_believed_from_the_next_probe_on() {
    let (before, after) = (Clocks::steady(0, 100_000), Clocks::steady(-7 * SECOND, 100_000));
    let mut e = estimator();
    for i in 0..20 {
        let clocks = if i < 10 { before } else { after };
        e.probe(clocks.probe(i * SECOND, 100_000, 10_000, 100_000));
        let (error, bound) = error(&e, clocks, i * SECOND + SECOND / 2);
        assert!(error <= bound && bound < MS, "{error} ± {bound} after {i} s");
    }
}

#[test]
fn a_drift_beyond_the_assumed_maximum_is_believed_when_measured() {
    let clocks = Clocks::steady(0, 5_000_000);
    let mut e = estimator();
    for i in 0..20 {
        e.probe(clocks.probe(i * SECOND, 100_000, 10_000, 100_000));
        if i > 0 {
            let (error, bound) = error(&e, clocks, i * SECOND);
            assert!(error <= bound, "{error} > {bound} after {i} s");
        }
    }
}

#[test]
fn one_clock_domain_is_exactly_zero_whatever_was_probed() {
    let here = ClockDomain { boot_id: "b".into(), time_namespace: "time:[1]".into() };
    let there = ClockDomain { time_namespace: "time:[2]".into(), ..here.clone() };
    let mut e = estimator();
    e.probe(Clocks::steady(SECOND, 0).probe(0, MS, MS, MS));
    e.set_domains(&here, &here);
    assert_eq!(e.estimate(Stamp::from_ns(9)), Some(Offset::default()));
    let stamp = Stamp::from_ns(77);
    assert_eq!(e.to_ours(stamp), Some(Mapped { stamp, bound_ns: 0 }));
    e.set_domains(&here, &there);
    assert_eq!(e.estimate(Stamp::from_ns(9)), None, "a peer in another domain must be probed first");
}

#[test]
fn memory_stays_bounded_and_old_observations_are_forgotten() {
    let clocks = Clocks::steady(SECOND, 0);
    let mut e = OffsetEstimator::new(Duration::from_secs(100));
    e.probe(clocks.probe(0, 1_000, 10, 1_000));
    for i in 1..5_000 {
        e.probe(clocks.probe(i * SECOND / 10, 10 * MS, 10, 10 * MS));
        assert!(e.upper.len() <= 1_001 && e.lower.len() <= 1_001);
    }
    let (_, bound) = error(&e, clocks, 500 * SECOND);
    assert!(bound > 9 * MS, "the narrow probe of 500 s ago must no longer count: {bound}");
}

#[test]
fn stamps_out_of_order_make_no_probe() {
    let t = Stamp::from_ns;
    assert!(Probe::new(t(5), t(1), t(2), t(4)).is_none());
    assert!(Probe::new(t(1), t(3), t(2), t(4)).is_none());
    assert_eq!(Probe::new(t(1), t(10), t(12), t(9)).map(|p| p.round_trip_ns()), Some(6));
}
