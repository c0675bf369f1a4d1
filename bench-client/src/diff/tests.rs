//! Calibration: what is noise is called noise as often as promised, what is not is found and placed.

use std::fmt::Write as _;

use super::{pairs::Incomparable, results::Breakdown, *};
use crate::load::random::Random;

const REQUESTS: usize = 256;

/// What differs between two synthetic sides.
#[derive(Clone, Copy, Default)]
struct Change {
    prefill_ms: f64,
    /// Of the wait, charged to `batch_size`.
    wait_factor: f64,
    seed: u64,
}

/// Lines of `runs` runs as `run --jsonl-out` writes them: a queue that fills and drains, machine noise
/// that lasts for some requests, a few hiccups. Load `load` is the same wherever it is the same number.
fn lines(load: u64, runs: usize, noise_seed: u64, change: Change) -> String {
    let (mut shared, mut noise) = (Random::new(load), Random::new(noise_seed));
    let (mut out, mut wander) = (String::new(), 0.0);
    for run in 0..runs {
        let mut queue = 0.0_f64;
        for index in 0..REQUESTS {
            queue = (queue + 12.0 * shared.gamma_of_mean_one(0.5) - 16.0).max(0.0);
            wander = 0.8 * wander + noise.normal();
            let hiccup = if noise.uniform() < 0.02 { 40.0 * noise.gamma_of_mean_one(1.0) } else { 0.0 };
            let wait = (queue + wander.abs()) * (1.0 + change.wait_factor);
            let prefill = 8.0 + wander.abs() + hiccup + change.prefill_ms;
            let ttft = wait + prefill + 0.5;
            let _ = writeln!(
                out,
                "{{\"run\":{run},\"index\":{index},\"outcome\":\"finished\",\"fingerprint\":\"{:x}\",\
                 \"label\":\"x\",\"load\":\"256 requests\",\"load_seed\":{load},\"validity\":\"VALID\",\
                 \"ttft_ms\":{ttft},\"latency_ms\":{},\"queue_wait_ms\":{wait},\"prefill_ms\":{prefill},\
                 \"accept_ms\":0.5,\"unexplained_ms\":0.0,\"cause_batch_size_ms\":{wait}}}",
                load * 1000 + index as u64,
                ttft + 100.0,
            );
        }
    }
    out
}

fn side(load: u64, runs: usize, change: Change) -> Side {
    Side::parse(&lines(load, runs, change.seed, change)).unwrap()
}

fn aa(pair: u64, runs: usize) -> Diff {
    let of = |seed| side(pair, runs, Change { seed, ..Change::default() });
    compare(&of(1_000 + pair), &of(2_000 + pair), &[], 0).unwrap()
}

/// How many of `pairs` A/A intervals cover 0, by statistic.
fn covered(pairs: u64, runs: usize) -> [(&'static str, usize); 3] {
    let diffs: Vec<Diff> = (0..pairs).map(|pair| aa(pair, runs)).collect();
    ["mean", "p50", "p99"].map(|s| (s, diffs.iter().filter(|d| !d.ttft[s].ttft.is_told_from_noise()).count()))
}

#[test]
fn of_twenty_pairs_without_a_difference_at_least_eighteen_intervals_cover_zero() {
    for runs in [1, 3] {
        for (statistic, n) in covered(20, runs) {
            assert!(n >= 18, "{n} of 20 {statistic} intervals of {runs} runs cover 0");
        }
    }
}

#[test]
fn a_worse_prefill_is_found_and_placed() {
    let (a, b) =
        (Change { seed: 1, ..Change::default() }, Change { prefill_ms: 5.0, seed: 2, ..Change::default() });
    let diff = compare(&side(7, 3, a), &side(7, 3, b), &["prefill_mean>+2ms".parse().unwrap()], 0).unwrap();
    let mean = &diff.ttft["mean"];
    let prefill = segment(mean, "prefill");
    let off = (prefill.moved_ms - 5.0).abs();
    assert!(prefill.is_told_from_noise() && off < 2.0 * prefill.half_width_ms, "{prefill:?}");
    assert!(!segment(mean, "queue_wait").is_told_from_noise(), "{mean:?}");
    assert!(text::sentence("mean", mean).contains("prefill +"), "{}", text::sentence("mean", mean));
    assert_eq!(diff.gates[0].verdict, results::GateVerdict::Exceeded);
}

#[test]
fn a_longer_wait_is_told_with_its_cause() {
    let (a, b) =
        (Change { seed: 1, ..Change::default() }, Change { wait_factor: 0.5, seed: 2, ..Change::default() });
    let diff = compare(&side(7, 6, a), &side(7, 6, b), &[], 0).unwrap();
    let said = text::sentence("mean", &diff.ttft["mean"]);
    assert!(said.contains("queue_wait +") && said.contains("[batch_size +"), "{said}");
    assert!(text::page(&diff).contains("1536 pairs of requests in 6 runs"));
}

#[test]
fn segments_add_up_to_ttft_at_every_statistic() {
    for (name, b) in &aa(3, 2).ttft {
        let parts: f64 = b.segments.iter().map(|(_, m)| m.moved_ms).sum();
        assert!((parts - b.ttft.moved_ms).abs() < 1e-6, "{name}: {parts} and {}", b.ttft.moved_ms);
    }
}

#[test]
fn other_loads_are_refused_by_name() {
    let (a, b) = (side(1, 1, Change::default()), side(2, 1, Change::default()));
    let refused = compare(&a, &b, &[], 0).unwrap_err();
    assert_eq!(
        refused,
        Incomparable::Load { a: "256 requests, seed 1".into(), b: "256 requests, seed 2".into() }
    );
    let more = side(1, 2, Change::default());
    assert_eq!(compare(&a, &more, &[], 0).unwrap_err(), Incomparable::Runs { a: 1, b: 2 });
    let asked = lines(1, 1, 0, Change::default()).replace("\"fingerprint\":\"3e8\"", "\"fingerprint\":\"0\"");
    let other = Side::parse(&asked).unwrap();
    let refused = compare(&a, &other, &[], 0).unwrap_err();
    assert!(refused.to_string().contains("1 of 256 requests asked something else"), "{refused}");
}

#[test]
fn lines_of_something_else_are_named() {
    let (line, what) = Side::parse("{\"run\":0,\"index\":0}").unwrap_err();
    assert_eq!((line, what.as_str()), (1, "no \"load\""));
    assert_eq!(Side::parse("").unwrap_err().1, "no request");
}

#[test]
fn a_request_that_failed_on_one_side_is_in_no_pair() {
    let text = lines(1, 1, 1, Change::default());
    let (first, rest) = text.split_once('\n').unwrap();
    let failed = first.replace("finished", "full").replace("\"ttft_ms\":", "\"was\":");
    let a = Side::parse(&format!("{failed}\n{rest}")).unwrap();
    let diff = compare(&a, &Side::parse(&text).unwrap(), &[], 0).unwrap();
    assert_eq!((diff.method.pairs, diff.a.failed, diff.b.failed), (REQUESTS - 1, 1, 0));
}

fn segment<'a>(b: &'a Breakdown, name: &str) -> &'a results::Movement {
    &b.segments.iter().find(|(n, _)| *n == name).unwrap().1
}
