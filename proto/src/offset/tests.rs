use proptest::prelude::*;

use super::*;

const MS: i64 = 1_000_000;
const SECOND: i64 = 1_000 * MS;

/// Two clocks of which the second is ahead by `ahead` at our time 0 and gains `drift` ppb.
#[derive(Clone, Copy, Debug)]
struct Clocks {
    ahead: i64,
    drift: i64,
}

impl Clocks {
    fn theirs(self, ours: i64) -> Stamp {
        Stamp::from_ns(ours + self.offset(ours))
    }

    fn offset(self, ours: i64) -> i64 {
        self.ahead + gained(ours, self.drift)
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
        .prop_map(|(ahead, drift)| Clocks { ahead, drift })
}

proptest! {
    #[test]
    fn the_true_offset_is_always_inside_the_bound(
        clocks in clocks(),
        base_there in 20_000..50 * MS,
        base_back in 20_000..50 * MS,
        ways in prop::collection::vec((0..5 * MS, 0..5 * MS, 1_000..2 * MS, 1..3 * SECOND), 1..200),
        ask in -60 * SECOND..700 * SECOND,
    ) {
        let mut e = estimator();
        let mut at = 0;
        for (jitter_there, jitter_back, answer, pause) in ways {
            e.probe(clocks.probe(at, base_there + jitter_there, answer, base_back + jitter_back));
            at += pause;
            let (error, bound) = error(&e, clocks, at);
            prop_assert!(error <= bound, "error {error} outside bound {bound} at {at}");
        }
        let (error, bound) = error(&e, clocks, ask);
        prop_assert!(error <= bound, "error {error} outside bound {bound} when asked at {ask}");
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
    let clocks = Clocks { ahead: 1_000 * SECOND, drift: 0 };
    let mut e = estimator();
    for i in 0..100 {
        e.probe(clocks.probe(i * 10 * MS, 40 * MS, 50_000, MS));
    }
    let (error, bound) = error(&e, clocks, SECOND);
    assert!(error > 15 * MS, "the asymmetry shifts the estimate by about 19.5 ms, not {error} ns");
    assert!((20 * MS..21 * MS).contains(&bound), "half of the round trip, not {bound} ns");
}

#[test]
fn drift_is_found_and_keeps_the_bound_near_half_the_round_trip() {
    let clocks = Clocks { ahead: -5 * SECOND, drift: 200_000 };
    let mut e = estimator();
    for i in 0..100 {
        e.probe(clocks.probe(i * SECOND, 100_000, 10_000, 100_000));
    }
    let (low, high) = e.drift_ppb();
    assert!(low <= 200_000 && 200_000 <= high && high - low < 25_000, "{low}..{high}");
    let (error, bound) = error(&e, clocks, 110 * SECOND);
    assert!(error <= bound && bound < 400_000, "{bound}");
}

#[test]
fn a_drift_beyond_the_assumed_maximum_is_believed_when_measured() {
    let clocks = Clocks { ahead: 0, drift: 5_000_000 };
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
    e.probe(Clocks { ahead: SECOND, drift: 0 }.probe(0, MS, MS, MS));
    e.set_domains(&here, &here);
    assert_eq!(e.estimate(Stamp::from_ns(9)), Some(Offset::default()));
    let stamp = Stamp::from_ns(77);
    assert_eq!(e.to_ours(stamp), Some(Mapped { stamp, bound_ns: 0 }));
    e.set_domains(&here, &there);
    assert_eq!(e.estimate(Stamp::from_ns(9)), None, "a peer in another domain must be probed first");
}

#[test]
fn memory_stays_bounded_and_old_observations_are_forgotten() {
    let clocks = Clocks { ahead: SECOND, drift: 0 };
    let mut e = OffsetEstimator::new(Duration::from_secs(100));
    e.probe(clocks.probe(0, 1_000, 10, 1_000));
    for i in 1..5_000 {
        e.probe(clocks.probe(i * SECOND / 10, 10 * MS, 10, 10 * MS));
        assert!(e.slots.len() <= SLOTS);
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
