//! Closure under trouble: mixed load with clients that hang up, preemption, an engine that dies and comes back,
//! and telemetry lost on purpose. Every chain of which the stamps arrived closes; where they did not, the missing
//! piece is named. Which requests lost what is known beforehand from their ids.

use std::time::Duration;

use firstlight_proto::inject::loss::{Loss, Share};
use firstlight_tests::{
    bench,
    chain::{SEGMENTS, number},
    pair::Pair,
    scrape::Page,
    wait,
};
use serde_json::Value;

/// Requests in flight at once.
const CONCURRENCY: usize = 160;

/// What goes wrong in a run.
struct Trouble {
    requests: usize,
    /// Share of requests that lose their spans, at each service.
    drop_spans: &'static str,
    /// Share of requests whose timeline the final message withholds.
    omit_timelines: &'static str,
    patience: Duration,
}

#[tokio::test]
async fn chains_close_under_trouble_or_name_what_is_missing() {
    // So much is lost that among 1000 requests several lose both ways.
    let trouble = Trouble {
        requests: 1_000,
        drop_spans: "0.1",
        omit_timelines: "0.3",
        patience: Duration::from_secs(100),
    };
    run(trouble).await;
}

#[tokio::test]
#[ignore = "10,000 requests: make test-long"]
async fn ten_thousand_chains_close_under_trouble() {
    let trouble = Trouble {
        requests: 10_000,
        drop_spans: "0.01",
        omit_timelines: "0.2",
        patience: Duration::from_secs(600),
    };
    run(trouble).await;
}

async fn run(trouble: Trouble) {
    let drop_spans = ["--drop-spans", trouble.drop_spans];
    let mut pair = Pair::sim()
        .engine(&drop_spans)
        // Room for about half of what is active: sequences give way.
        .engine(&["--kv-blocks", "400", "--sim-time-scale", "0.5"])
        .scheduler(&drop_spans)
        .scheduler(&["--kv-promise", "optimistic", "--kv-margin-tokens", "0", "--max-active-requests", "96"])
        .start()
        .await;
    let (count, concurrency) = (trouble.requests.to_string(), CONCURRENCY.to_string());
    #[rustfmt::skip]
    let load = [
        "--num-requests", &count, "--max-concurrency", &concurrency, "--warmup-runs", "0", "--no-self-check",
        "--dataset", "random", "--input-len", "8..200", "--output-len", "4..60",
        "--hang-up", "0.05", "--hang-up-within-ms", "1500", "--omit-timelines", trouble.omit_timelines,
        "--allow-failures",
    ];
    let bench = bench::start(&pair, &load);
    let half = trouble.requests as f64 / 2.0;
    wait::patiently("half of the requests ended", trouble.patience, || async {
        let ended = Page::of(&pair.scheduler_metrics).await.sum("firstlight_requests_finished_total");
        (ended >= half).then_some(())
    })
    .await;
    pair.engines[0].kill();
    pair.engines[0].restart();
    let ended = bench.ended(trouble.patience).await;
    assert!(ended.output.status.success(), "{}", ended.said());
    let page = Page::of(&pair.scheduler_metrics).await;

    let tally = Tally::of(&ended.requests, &trouble);
    let totals = |name: &str| page.sum(name) as u64;
    let (preempted, lost) =
        (totals("firstlight_preemptions_total"), totals("firstlight_attempts_lost_total"));
    println!(
        "{} requests: {} with a first token, {} hung up; {preempted} preemptions, {lost} attempts lost with the engine",
        trouble.requests, tally.chains, tally.hung_up
    );
    println!(
        "{} % of spans dropped at each service, {} % of timelines withheld: stamps from the final message in {}; \
         missing: scheduler in {}, engine in {}",
        percent(trouble.drop_spans),
        percent(trouble.omit_timelines),
        tally.stood_in,
        tally.without_scheduler,
        tally.without_engine
    );
    println!(
        "chains complete {}, most unexplained {:.6} % of TTFT; negative segments {}, unexplained over all {:.6} %",
        tally.complete,
        tally.worst_percent,
        tally.negative,
        number(&ended.results, "/unexplained/percent_of_ttft")
    );

    assert_eq!(tally.wrong, Vec::<String>::new());
    assert!(preempted > 0 && lost > 0 && tally.hung_up > 0, "the trouble came");
    assert!(tally.untold <= CONCURRENCY, "{} lost with the scheduler's spans", tally.untold);
    assert!(tally.without_scheduler > 0 && tally.without_engine > 0, "some lost both ways");
    let failures = ended.results["requests"]["failed_by_kind"].as_object().unwrap();
    assert!(failures.keys().all(|kind| kind == "cancelled"), "only those that hung up failed: {failures:?}");
    let counted: f64 =
        SEGMENTS.iter().map(|part| number(&ended.results, &format!("/segments/{part}/negative"))).sum();
    assert_eq!(counted, tally.negative as f64, "every negative segment is counted");
}

/// What the chains of a run look like, and what is wrong with them.
#[derive(Default)]
struct Tally {
    chains: usize,
    hung_up: usize,
    complete: usize,
    stood_in: usize,
    without_scheduler: usize,
    without_engine: usize,
    untold: usize,
    negative: usize,
    worst_percent: f64,
    wrong: Vec<String>,
}

impl Tally {
    fn of(requests: &[Value], trouble: &Trouble) -> Self {
        let mut tally = Self::default();
        if requests.len() != trouble.requests {
            tally.wrong.push(format!("{} requests in the file", requests.len()));
        }
        for request in requests {
            tally.add(request, trouble);
        }
        tally
    }

    fn add(&mut self, request: &Value, trouble: &Trouble) {
        let id = request["request_id"].as_str().expect("an id");
        let finished = request["outcome"] == "finished";
        self.hung_up += usize::from(!finished);
        let Some(ttft) = request["ttft_ms"].as_f64() else { return };
        self.chains += 1;
        let spans: Share = trouble.drop_spans.parse().expect("a share");
        let timelines: Share = trouble.omit_timelines.parse().expect("a share");
        let last_word = finished && !timelines.takes(Loss::Timeline, id);
        let no_scheduler = spans.takes(Loss::SchedulerSpans, id) && !last_word;
        // The scheduler relays the engine's stamps in its own spans: what an engine that died had not told goes with them.
        let untold = no_scheduler && request["missing"] == "scheduler stamps; engine stamps";
        let no_engine = spans.takes(Loss::EngineSpans, id) && !last_word || untold;
        self.untold += usize::from(untold);
        self.without_scheduler += usize::from(no_scheduler);
        self.without_engine += usize::from(no_engine);
        let sources = [&request["scheduler_stamps"], &request["engine_stamps"]];
        self.stood_in += usize::from(sources.into_iter().any(|source| source == "final"));
        self.negative +=
            SEGMENTS.iter().filter(|part| part_ms(request, part).is_some_and(|ms| ms < 0.0)).count();

        let named = [(no_scheduler, "scheduler stamps"), (no_engine, "engine stamps")];
        let named: Vec<&str> = named.into_iter().filter(|n| n.0).map(|n| n.1).collect();
        if request["missing"] != named.join("; ") {
            self.wrong.push(format!("{id} misses {named:?}, but says {}", request["missing"]));
        }
        let unexplained = request["unexplained_ms"].as_f64().expect("of every chain");
        let known: f64 = SEGMENTS.iter().filter_map(|part| part_ms(request, part)).sum();
        if (known + unexplained - ttft).abs() > 1e-5 {
            self.wrong.push(format!("{id}: {known} known and {unexplained} unexplained of {ttft} ms"));
        }
        if named.is_empty() {
            self.complete += 1;
            let percent = 100.0 * unexplained.abs() / ttft;
            self.worst_percent = self.worst_percent.max(percent);
            if percent > 0.1 {
                self.wrong.push(format!("{id}: {percent} % of TTFT unexplained"));
            }
        }
    }
}

fn part_ms(request: &Value, part: &str) -> Option<f64> {
    request[format!("{part}_ms")].as_f64()
}

fn percent(share: &str) -> f64 {
    100.0 * share.parse::<f64>().expect("a share")
}
