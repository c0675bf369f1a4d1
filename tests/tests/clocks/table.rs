//! The true length of each crossing segment lies within the bound that is stated with it, whatever the clocks; where
//! the ways are asymmetric the bound is as wide as it has to be.

use firstlight_tests::{bench, relay::Ways, wait};
use serde_json::Value;

use crate::settings::{self, Setting};

/// Share of requests in which the truth must lie within the bound.
const INSIDE: f64 = 0.99;
/// Undoing a drift rounds to whole ns, at both ends.
const ROUNDING_NS: f64 = 4.0;
const LOAD: &[&str] = &[
    "--no-self-check",
    "--warmup-runs",
    "1",
    "--num-requests",
    "200",
    "--submit-interval-ms",
    "15",
    "--max-new-tokens",
    "2",
    "--unique-prompts",
];

/// A crossing segment: its stamps, each with the clock that took it.
struct Crossing {
    name: &'static str,
    from: (&'static str, Clock),
    to: (&'static str, Clock),
    way: fn(&Setting) -> Option<Ways>,
}

#[derive(Clone, Copy)]
enum Clock {
    Client,
    Scheduler,
    Engine,
}

const CROSSINGS: [Crossing; 4] = [
    Crossing {
        name: "ingress",
        from: ("sent_ns", Clock::Client),
        to: ("scheduler_received_ns", Clock::Scheduler),
        way: |s| s.to_scheduler,
    },
    Crossing {
        name: "dispatch",
        from: ("scheduler_admit_ns", Clock::Scheduler),
        to: ("engine_received_ns", Clock::Engine),
        way: |s| s.to_engine,
    },
    Crossing {
        name: "return",
        from: ("engine_first_token_ns", Clock::Engine),
        to: ("scheduler_first_token_ns", Clock::Scheduler),
        way: |s| s.to_engine,
    },
    Crossing {
        name: "deliver",
        from: ("scheduler_first_token_ns", Clock::Scheduler),
        to: ("first_token_ns", Clock::Client),
        way: |s| s.to_scheduler,
    },
];

#[tokio::test]
async fn the_true_segment_lies_within_its_bound_in_every_setting() {
    println!(
        "{:34} {:9} {:>9} {:>9} {:>9} {:>7}",
        "setting", "segment", "true", "estimated", "bound", "inside"
    );
    let mut wrong = Vec::new();
    for setting in settings::all() {
        let pair = setting.plan.clone().start().await;
        let ended = bench::start(&pair, &[LOAD, setting.bench].concat()).ended(wait::PATIENCE).await;
        assert!(ended.output.status.success(), "{}: {}", setting.name, ended.said());
        for crossing in &CROSSINGS {
            let row = Row::of(&setting, crossing, &ended.requests);
            println!(
                "{:34} {:9} {:9.3} {:9.3} {:9.3} {:6.1}%",
                setting.name,
                crossing.name,
                row.truth_ms,
                row.estimated_ms,
                row.bound_ms,
                100.0 * row.inside
            );
            wrong.extend(row.wrong(&setting, crossing).map(|what| format!("{}: {what}", setting.name)));
        }
        check_clocks(&setting, &ended.results["clock"], &mut wrong);
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Means of one segment in one setting, ms.
struct Row {
    n: usize,
    truth_ms: f64,
    estimated_ms: f64,
    bound_ms: f64,
    inside: f64,
}

impl Row {
    fn of(setting: &Setting, crossing: &Crossing, requests: &[Value]) -> Self {
        let mut row = Self { n: 0, truth_ms: 0.0, estimated_ms: 0.0, bound_ms: 0.0, inside: 0.0 };
        for request in requests {
            let at = |(stamp, clock): (&str, Clock)| {
                let ns = request[stamp].as_i64().unwrap_or_else(|| panic!("{stamp} of {request}"));
                match clock {
                    Clock::Client => setting.client_ns(ns),
                    Clock::Scheduler => ns,
                    Clock::Engine => setting.engine_ns(ns),
                }
            };
            let field =
                |name: String| request[&name].as_f64().unwrap_or_else(|| panic!("{name} of {request}"));
            let truth = (at(crossing.to) - at(crossing.from)) as f64 / 1e6;
            let (value, bound) =
                (field(format!("{}_ms", crossing.name)), field(format!("{}_bound_ms", crossing.name)));
            row.n += 1;
            row.truth_ms += truth;
            row.estimated_ms += value;
            row.bound_ms += bound;
            row.inside += f64::from((value - truth).abs() <= bound + ROUNDING_NS / 1e6);
        }
        let n = row.n.max(1) as f64;
        for sum in [&mut row.truth_ms, &mut row.estimated_ms, &mut row.bound_ms, &mut row.inside] {
            *sum /= n;
        }
        row
    }

    fn wrong(&self, setting: &Setting, crossing: &Crossing) -> impl Iterator<Item = String> {
        let name = crossing.name;
        let few = (self.n < 200).then(|| format!("{} of 200 requests", self.n));
        let outside = (self.inside < INSIDE).then(|| format!("{name}: {} inside", self.inside));
        // What a relay holds back in either direction no probe can tell from an offset.
        let ways = (crossing.way)(setting).unwrap_or_default();
        let least = (ways.there.delay + ways.back.delay).as_secs_f64() * 1e3 / 2.0;
        let stranger = self.bound_ms > 0.0;
        let narrow = (stranger && self.bound_ms < least)
            .then(|| format!("{name}: ± {} ms, but nobody can know better than {least}", self.bound_ms));
        let way = if matches!(name, "ingress" | "dispatch") { ways.there } else { ways.back };
        let short = (self.truth_ms < way.delay.as_secs_f64() * 1e3)
            .then(|| format!("{name}: {} ms over a way of {:?}", self.truth_ms, way.delay));
        [few, outside, narrow, short].into_iter().flatten()
    }
}

/// The loop client → scheduler → engine → client comes out at 0 within the sum of its bounds.
fn check_clocks(setting: &Setting, clock: &Value, wrong: &mut Vec<String>) {
    let number = |path: &str| clock.pointer(path).and_then(Value::as_f64);
    let (residual, bound) = (number("/loop_residual_ms"), number("/loop_bound_ms"));
    println!(
        "{:34} scheduler {:+.3} ± {:.3} ms, engine {:+.3} ± {:.3} ms, loop residual {:+.4} (bound {:.4}) ms",
        "",
        number("/scheduler/offset_ms").unwrap_or(f64::NAN),
        number("/scheduler/bound_ms").unwrap_or(f64::NAN),
        number("/engine/offset_ms").unwrap_or(f64::NAN),
        number("/engine/bound_ms").unwrap_or(f64::NAN),
        residual.unwrap_or(f64::NAN),
        bound.unwrap_or(f64::NAN),
    );
    if !residual.zip(bound).is_some_and(|(residual, bound)| residual.abs() <= bound) {
        wrong.push(format!("{}: loop residual {residual:?}, bound {bound:?}", setting.name));
    }
}
