use firstlight_proto::{
    clock::Stamp,
    v1::{ClockDomain, EngineTimeline, Timeline},
};

use super::*;
use crate::{
    join::join,
    observe::{ClockMap, SpanStore},
    target::{Arrival, Record},
};

const MS: i64 = 1_000_000;
const N: usize = 200;

fn domain() -> ClockDomain {
    ClockDomain { boot_id: "b".into(), time_namespace: "t".into() }
}

/// A request that waits 10 ms, is prefilled in 5 ms and ends 20 ms after it was queued.
fn record(index: usize) -> Record {
    let start = index as i64 * MS + 1_000 * MS;
    let mut r = Record::new(format!("r{index}"), 0, index, Stamp::from_ns(start));
    r.sent = Some(Stamp::from_ns(start));
    r.arrivals = vec![Arrival { at: Stamp::from_ns(start + 15 * MS), tokens: 1 }];
    r.ended = Some(Stamp::from_ns(start + 20 * MS));
    r.outcome = Outcome::Finished;
    let scheduler = SchedulerTimeline {
        domain: Some(domain()),
        received_ns: start,
        queued_ns: start,
        admit_ns: start + 10 * MS,
        first_token_ns: start + 15 * MS,
        finished_ns: start + 20 * MS,
        queue_wait_ns: 10 * MS,
        ..Default::default()
    };
    let engine = EngineTimeline {
        domain: Some(domain()),
        received_ns: start + 10 * MS,
        admit_ns: start + 10 * MS,
        first_token_ns: start + 15 * MS,
        ..Default::default()
    };
    r.timeline = Some(Timeline { scheduler: Some(scheduler), engine: Some(engine), ..Default::default() });
    r
}

/// What honest services export of `n` such requests.
fn scraped(n: usize) -> Scraped {
    let scheduler = Scrape::parse(&format!(
        "firstlight_requests_received_total {n}\nfirstlight_requests_queued_total {n}\n\
         firstlight_requests_finished_total{{outcome=\"length\"}} {n}\nfirstlight_output_tokens_total {n}\n\
         firstlight_ttft_seconds_count {n}\nfirstlight_queue_blocked_seconds_total {0}\n\
         firstlight_ttft_segment_seconds_sum{{segment=\"queue_wait\"}} {0}\n\
         firstlight_ttft_segment_seconds_sum{{segment=\"prefill\"}} {1}\n",
        n as f64 * 0.010,
        n as f64 * 0.005
    ));
    let engine = Scrape::parse(&format!(
        "firstlight_engine_finished_total{{reason=\"length\"}} {n}\nfirstlight_engine_generated_tokens_total {n}\n\
         firstlight_engine_segment_seconds_sum{{segment=\"prefill\"}} {}\n",
        n as f64 * 0.005
    ));
    let mut in_system = Gauge::default();
    for ms in 0..=(N as i64 + 40) {
        // One arrives each ms and stays for 20.
        let inside = (ms + 1).min(20).min((N as i64 + 19 - ms).max(0)) as f64;
        in_system.push(Stamp::from_ns(ms * MS), inside);
    }
    let zero = Scrape::default;
    Scraped { scheduler: (zero(), scheduler), engines: vec![(zero(), engine)], in_system }
}

fn disagreements(records: &[Record], scraped: &Scraped) -> Vec<String> {
    let mut clocks = ClockMap::new(domain());
    let t = Stamp::from_ns;
    let probe = firstlight_proto::offset::Probe::new(t(1), t(1), t(1), t(1)).unwrap();
    clocks.learn(None, Some(&domain()), probe);
    let spans = SpanStore::default();
    let joined = join(records, &spans, &clocks);
    audit(&joined, scraped)
        .disagreements()
        .map(|c| format!("{}: {} ⇄ {}", c.what, c.left.0, c.right.0))
        .collect()
}

fn records() -> Vec<Record> {
    (0..N).map(record).collect()
}

#[test]
fn honest_ledgers_agree() {
    assert_eq!(disagreements(&records(), &scraped(N)), Vec::<String>::new());
}

#[test]
fn one_percent_of_requests_without_spans_and_timeline_is_found() {
    let mut records = records();
    for r in records.iter_mut().step_by(100) {
        r.timeline = None;
    }
    let found = disagreements(&records, &scraped(N));
    assert!(found.contains(&"first tokens: client ⇄ complete chains".to_owned()), "{found:?}");
    assert!(found.contains(&"first tokens: timelines ⇄ scheduler's histogram".to_owned()), "{found:?}");
    assert!(found.iter().any(|f| f.starts_with("queue_wait in s")), "{found:?}");
}

#[test]
fn one_forgotten_cancelled_request_is_found() {
    // The scheduler received and queued it, and it never ended.
    let mut with_one_more = scraped(N);
    let more = Scrape::parse(&format!(
        "firstlight_requests_received_total {0}\nfirstlight_requests_queued_total {0}\n\
         firstlight_requests_finished_total{{outcome=\"length\"}} {N}\n",
        N + 1
    ));
    with_one_more.scheduler.1 = more;
    let mut records = records();
    let mut cancelled = record(N);
    cancelled.outcome = Outcome::Failed { kind: "cancelled", message: String::new() };
    records.push(cancelled);
    let found = disagreements(&records, &with_one_more);
    assert!(found.contains(&"requests: scheduler queued ⇄ scheduler finished".to_owned()), "{found:?}");
}

#[test]
fn a_client_that_forgets_a_request_is_found() {
    let found = disagreements(&records()[1..], &scraped(N));
    assert!(found.contains(&"requests: client sent ⇄ scheduler received".to_owned()), "{found:?}");
}

#[test]
fn a_gauge_that_is_stuck_breaks_littles_law() {
    let mut stuck = scraped(N);
    stuck.in_system.push(Stamp::from_ns(3_000 * MS), 20.0);
    let found = disagreements(&records(), &stuck);
    assert_eq!(found, ["Little's law, request × s: Σ W of timelines ⇄ ∫ L of the scheduler's gauges"]);
}
