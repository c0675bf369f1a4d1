use std::collections::BTreeMap;

use super::*;
use crate::{
    join::part_names,
    report::{
        results::{ClockInfo, ClockPoint, SegmentStats, Slowest},
        stats::Percentiles,
    },
};

fn times(ms: f64, n: usize) -> Percentiles {
    let t = Some(ms);
    Percentiles { mean_ms: t, p50_ms: t, p95_ms: t, p99_ms: t, std_ms: Some(0.0), n }
}

fn results(n: usize) -> Results {
    let mut r = Results { ttft: times(500.0, n), queue_wait_total: times(450.0, n), ..Results::default() };
    for name in part_names() {
        let share_ms = Some(if name == "queue_wait" { 440.0 } else { 1.0 });
        let stats =
            SegmentStats { times: times(1.0, n), bound_ms: Some(0.0), share_ms, ..Default::default() };
        r.segments.insert(name.to_owned(), stats);
    }
    r.queue_wait_by_cause =
        BTreeMap::from([("max_active".to_owned(), 400.0), ("engine_busy".to_owned(), 50.0)]);
    r.run.budget = BTreeMap::from([("max_active_requests".to_owned(), "64".to_owned())]);
    r.slowest_1pct = Slowest { n: 5, ..Slowest::default() };
    r
}

#[test]
fn the_blamed_limit_is_named_with_its_value() {
    let page = page(&results(256), false);
    assert!(page.contains("→ max_active is 89 % of the queue wait"), "{page}");
    assert!(page.contains("max_active_requests (now 64)"), "{page}");
}

#[test]
fn a_p99_of_few_samples_is_marked() {
    assert!(page(&results(16), false).contains("* p99 of fewer than 100 samples"));
    assert!(!page(&results(256), false).contains("* p99"));
}

#[test]
fn what_was_not_measured_is_a_dash() {
    let page = page(&Results::default(), false);
    let line = page.lines().find(|l| l.starts_with("Latency")).unwrap();
    assert_eq!(line.matches('–').count(), 3, "{line}");
    assert!(!page.contains("NaN"));
}

#[test]
fn a_negative_or_unresolved_segment_says_so() {
    let mut r = results(256);
    let ingress = r.segments.get_mut("ingress").unwrap();
    (ingress.negative, ingress.unresolved, ingress.bound_ms) = (3, 7, Some(0.25));
    let page = page(&r, false);
    let line = page.lines().find(|l| l.trim_start().starts_with("ingress")).unwrap();
    assert!(line.contains("± 0.250") && line.contains("unresolved in 7") && line.contains("negative in 3"));
}

#[test]
fn one_clock_is_said_to_be_exact() {
    let same = ClockPoint { same_clock: true, ..ClockPoint::default() };
    let clock = ClockInfo { scheduler: Some(same), ..ClockInfo::default() };
    assert!(page(&Results { clock, ..results(256) }, false).contains("scheduler same clock (0 exactly)"));
}

#[test]
fn bars_grow_with_their_value_and_keep_their_width() {
    assert_eq!(bar(Some(10.0), 10.0), "█".repeat(BAR));
    assert_eq!(bar(Some(0.0), 10.0), " ".repeat(BAR));
    assert_eq!(bar(None, 0.0).chars().count(), BAR);
    assert_eq!(bar(Some(3.3), 10.0).chars().count(), BAR);
}
