//! Named figures of a run, so that what was measured and what is predicted stand side by side. Times are ms; a figure
//! that is not known is not there.

use std::collections::BTreeMap;

use firstlight_proto::cause;
use serde_json::Value;

use crate::{
    load::dataset::recorded::Line,
    report::{
        Results,
        slo::{Judged, Slo},
        stats::{Percentiles, Samples},
    },
};

/// Figures by name.
pub type Figures = BTreeMap<String, f64>;

/// Adds mean and percentiles of a distribution.
pub fn put(figures: &mut Figures, name: &str, of: &Percentiles) {
    for (suffix, value) in [("mean", of.mean_ms), ("p50", of.p50_ms), ("p95", of.p95_ms), ("p99", of.p99_ms)]
    {
        if let Some(value) = value {
            figures.insert(format!("{name}_{suffix}_ms"), value);
        }
    }
}

/// Name of the figure that holds how much of the forwards' time a replay spent beyond what was recorded, percent.
pub const BEYOND_REACH: &str = "beyond_recorded_percent";

/// Name of the figure that holds the mean queue wait of a cause.
pub fn of_cause(label: &str) -> String {
    format!("cause_{label}_ms")
}

/// The figures of a recording.
pub fn of_recording(lines: &[Line], slo: Option<Slo>) -> Figures {
    let mut figures = Figures::new();
    let samples = |of: fn(&Line) -> Option<f64>| -> Percentiles {
        lines.iter().filter_map(|line| of(line).map(ns)).collect::<Samples>().percentiles()
    };
    put(&mut figures, "ttft", &samples(|line| line.ttft_ms));
    put(&mut figures, "queue_wait", &samples(|line| line.queue_wait_total_ms));
    put(&mut figures, "tpot", &samples(|line| line.tpot_ms));
    put(&mut figures, "latency", &samples(|line| line.latency_ms));
    for cause in cause::ALL {
        let name = of_cause(cause.label());
        let times: Vec<f64> = lines.iter().filter_map(|line| line.rest.get(&name)?.as_f64()).collect();
        if times.iter().any(|ms| *ms != 0.0) {
            figures.insert(name, times.iter().sum::<f64>() / times.len() as f64);
        }
    }
    let finished = |line: &&Line| line.outcome == "finished";
    figures.insert("failed".to_owned(), (lines.len() - lines.iter().filter(finished).count()) as f64);
    if let Some(wall_s) = wall_s(lines) {
        let tokens: u64 = lines.iter().map(|line| u64::from(line.output_tokens)).sum();
        figures.insert("output_tokens_per_s".to_owned(), tokens as f64 / wall_s);
    }
    // The longest gap between tokens is not recorded: an objective for it cannot be judged here.
    if let Some(slo) = slo.filter(|slo| !slo.judges_gaps()) {
        let met = lines.iter().filter(finished).filter(|line| slo.holds(judged(line))).count();
        figures.insert("goodput_percent".to_owned(), 100.0 * met as f64 / lines.len().max(1) as f64);
    }
    figures
}

/// The figures of a live run.
pub fn of_results(results: &Results) -> Figures {
    let mut figures = Figures::new();
    put(&mut figures, "ttft", &results.ttft);
    put(&mut figures, "queue_wait", &results.queue_wait_total);
    put(&mut figures, "tpot", &results.tpot);
    put(&mut figures, "itl", &results.itl);
    put(&mut figures, "latency", &results.latency);
    for (label, mean) in results.queue_wait_by_cause.iter().filter(|(_, ms)| **ms != 0.0) {
        figures.insert(of_cause(label), *mean);
    }
    figures.insert("failed".to_owned(), results.requests.failed as f64);
    let more = [
        ("output_tokens_per_s", results.throughput.output_tokens_per_s),
        ("goodput_percent", results.goodput.as_ref().map(|goodput| goodput.percent)),
    ];
    figures.extend(more.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))));
    figures
}

/// Figures as JSON.
pub fn to_json(figures: &Figures) -> Value {
    figures
        .iter()
        .map(|(name, value)| (name.clone(), Value::from(*value)))
        .collect::<serde_json::Map<_, _>>()
        .into()
}

/// From the first intended send to the last end, over all repeats, s.
fn wall_s(lines: &[Line]) -> Option<f64> {
    let runs = lines.iter().map(|line| line.run).max()?;
    let wall = |run: usize| {
        let of_run = || lines.iter().filter(move |line| line.run == run);
        let start = of_run().map(|line| line.submit_start_ns).min()?;
        let ends = of_run().filter_map(|line| Some(line.submit_start_ns + ns(line.latency_ms?)));
        Some((ends.max()? - start) as f64 / 1e9)
    };
    let all: f64 = (0..=runs).filter_map(wall).sum();
    (all > 0.0).then_some(all)
}

fn judged(line: &Line) -> Judged {
    Judged {
        ttft_ns: line.ttft_ms.map(ns),
        tpot_ns: line.tpot_ms.map(ns),
        longest_gap_ns: None,
        latency_ns: line.latency_ms.map(ns),
    }
}

fn ns(ms: f64) -> i64 {
    (ms * 1e6) as i64
}
