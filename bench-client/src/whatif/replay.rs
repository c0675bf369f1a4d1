//! One replay of planned arrivals under a budget, and what it adds up to.

use std::collections::HashMap;

use firstlight_proto::{clock::Stamp, v1};
use firstlight_sim::cost::Cost;
use hdrhistogram::Histogram;
use scheduler_svc::{
    admission::{BudgetError, Key},
    replay::{EngineShape, HandOvers, Observer, Story, World},
};

use super::{
    arrivals::Planned,
    budgets::Applied,
    figures::{BEYOND_REACH, Figures, of_cause, put},
    reach::{Measured, Reach},
};
use crate::report::{
    slo::{Judged, Slo},
    stats::{Percentiles, Samples, histogram_us},
};

/// What is replayed, but for costs and delays.
#[derive(Clone, Copy, Debug)]
pub struct Scenario<'a> {
    /// Requests, in the order they are queued.
    pub planned: &'a [Planned],
    /// Engines.
    pub engines: &'a [EngineShape],
    /// The budget in force.
    pub budget: &'a Applied,
    /// The largest forwards that its costs were fitted to.
    pub reach: Reach,
    /// Objectives to count requests by.
    pub slo: Option<Slo>,
}

/// Replays a scenario at these costs and delays.
///
/// # Errors
/// When the budget is out of range.
pub fn replay<C, W>(scenario: Scenario<'_>, cost: C, wire: W) -> Result<Figures, BudgetError>
where
    C: Cost + Clone,
    W: HandOvers,
{
    let start = scenario.planned.first().map_or(Stamp::from_ns(0), |planned| planned.queued);
    let Applied { budget, classes } = scenario.budget;
    let cost = Measured::new(cost, scenario.reach);
    let mut world = World::new(budget.clone(), wire, cost.clone(), Seen::new(), start)?;
    for shape in scenario.engines {
        world.attach(*shape);
    }
    let keys: Vec<Option<Key>> = scenario
        .planned
        .iter()
        .map(|planned| {
            world.run_until(planned.queued);
            let mut arrival = planned.arrival.clone();
            arrival.request.class = classes.get(&planned.class);
            world.offer(arrival).ok()
        })
        .collect();
    world.run_out();
    let mut figures = add_up(scenario, &keys, &world.into_observer());
    figures.insert(BEYOND_REACH.to_owned(), cost.percent_beyond());
    Ok(figures)
}

/// What is kept of a replay.
struct Seen {
    stories: HashMap<Key, Story>,
    /// µs.
    gaps: Histogram<u64>,
}

impl Seen {
    fn new() -> Self {
        Self { stories: HashMap::new(), gaps: histogram_us(3) }
    }
}

impl Observer for Seen {
    fn token(&mut self, _story: &Story, gap: Option<i64>) {
        if let Some(gap) = gap {
            self.gaps.saturating_record(u64::try_from(gap / 1000).unwrap_or(0).max(1));
        }
    }

    fn ended(&mut self, story: &Story) {
        self.stories.insert(story.key, story.clone());
    }
}

/// A request of the plan and what became of it.
struct Told<'a> {
    planned: &'a Planned,
    story: &'a Story,
}

impl Told<'_> {
    fn on_client(&self, at: Stamp) -> i64 {
        (at + self.planned.deliver).since(self.planned.submit_start)
    }

    fn ttft(&self) -> Option<i64> {
        self.story.first_token.map(|first| self.on_client(first))
    }

    fn tpot(&self) -> Option<i64> {
        let gaps = i64::from(self.story.tokens.0) - 1;
        let first_to_last = self.story.last_token?.since(self.story.first_token?);
        (gaps > 0).then(|| first_to_last / gaps)
    }

    fn latency(&self) -> Option<i64> {
        let (end, _) = self.story.end.filter(|_| self.story.finished())?;
        Some(self.on_client(end))
    }

    /// Stamps 3 → 6.
    fn queue_wait(&self) -> Option<i64> {
        Some(self.story.engine?.admitted.since(self.story.queued))
    }

    /// Stamps 3 → 6 by cause.
    fn causes(&self) -> Option<Vec<(v1::Cause, i64)>> {
        let (story, way) = (self.story, self.story.engine?);
        let mut causes: Vec<_> =
            story.waited.by_cause.iter().map(|(cause, ns)| (v1::Cause::from(cause), ns)).collect();
        causes.extend([
            (v1::Cause::RoundTrip, way.received.since(story.admitted?)),
            (v1::Cause::EngineBusy, way.wait.engine_busy),
            (v1::Cause::DecodeFirst, way.wait.decode_first),
            (v1::Cause::EngineLost, story.waited.engine_lost),
            (v1::Cause::Preempted, story.waited.preempted),
        ]);
        Some(causes)
    }

    fn judged(&self) -> Judged {
        Judged {
            ttft_ns: self.ttft(),
            tpot_ns: self.tpot(),
            longest_gap_ns: Some(self.story.longest_gap),
            latency_ns: self.latency(),
        }
    }
}

fn add_up(scenario: Scenario<'_>, keys: &[Option<Key>], seen: &Seen) -> Figures {
    let told: Vec<Told<'_>> = scenario
        .planned
        .iter()
        .zip(keys)
        .filter_map(|(planned, key)| Some(Told { planned, story: seen.stories.get(key.as_ref()?)? }))
        .collect();
    let samples =
        |of: fn(&Told<'_>) -> Option<i64>| told.iter().filter_map(of).collect::<Samples>().percentiles();
    let mut figures = Figures::new();
    put(&mut figures, "ttft", &samples(|told| told.ttft()));
    put(&mut figures, "queue_wait", &samples(|told| told.queue_wait()));
    put(&mut figures, "tpot", &samples(|told| told.tpot()));
    put(&mut figures, "itl", &gaps(&seen.gaps));
    put(&mut figures, "latency", &samples(|told| told.latency()));
    let waits: Vec<_> = told.iter().filter_map(Told::causes).collect();
    for (cause, ns) in waits.iter().flatten().filter(|(_, ns)| *ns != 0) {
        *figures.entry(of_cause(cause.label())).or_default() += *ns as f64 / 1e6 / waits.len() as f64;
    }
    let finished = || told.iter().filter(|told| told.story.finished());
    figures.insert("failed".to_owned(), (scenario.planned.len() - finished().count()) as f64);
    let start = scenario.planned.iter().map(|planned| planned.submit_start).min();
    let end = told.iter().filter_map(|told| Some(told.story.end?.0 + told.planned.deliver)).max();
    if let (Some(start), Some(end)) = (start, end) {
        let tokens: u64 = told.iter().map(|told| u64::from(told.story.tokens.0)).sum();
        figures
            .insert("output_tokens_per_s".to_owned(), tokens as f64 * 1e9 / end.since(start).max(1) as f64);
    }
    if let Some(slo) = scenario.slo {
        let met = finished().filter(|told| slo.holds(told.judged())).count();
        let percent = 100.0 * met as f64 / scenario.planned.len().max(1) as f64;
        figures.insert("goodput_percent".to_owned(), percent);
    }
    figures
}

fn gaps(us: &Histogram<u64>) -> Percentiles {
    if us.is_empty() {
        return Percentiles::default();
    }
    let at = |q: f64| Some(us.value_at_quantile(q) as f64 / 1e3);
    Percentiles {
        mean_ms: Some(us.mean() / 1e3),
        p50_ms: at(0.50),
        p95_ms: at(0.95),
        p99_ms: at(0.99),
        std_ms: Some(us.stdev() / 1e3),
        n: us.len() as usize,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use firstlight_sim::cost::CostModel;
    use scheduler_svc::{
        admission::{Blocks, Budget, Geometry, Request, Tokens},
        replay::{Arrival, Wire},
    };

    use super::*;

    fn engine() -> EngineShape {
        let geometry = Geometry {
            context: Tokens(1024),
            block_size: Tokens(16),
            kv_blocks: Blocks(1000),
            free_blocks: Blocks(1000),
            max_sequences: 256,
        };
        EngineShape { geometry, mixed: false }
    }

    fn burst(requests: usize) -> Vec<Planned> {
        let planned = Planned {
            submit_start: Stamp::from_ns(0),
            queued: Stamp::from_ns(1_000_000),
            deliver: Duration::from_millis(2),
            class: String::new(),
            arrival: Arrival::new(Request::new(Tokens(5), Tokens(8))),
        };
        vec![planned; requests]
    }

    fn figures(planned: &[Planned], engines: &[EngineShape], prefill_max_batch_size: u32) -> Figures {
        let budget = Budget { prefill_max_batch_size, ..Budget::default() };
        let budget = Applied { budget, ..Applied::default() };
        let wire = Wire { dispatch: Duration::from_micros(100), ..Wire::default() };
        let slo = Some("ttft=1s".parse().unwrap());
        let scenario = Scenario { planned, engines, budget: &budget, reach: Reach::default(), slo };
        replay(scenario, CostModel::default(), wire).unwrap()
    }

    #[test]
    fn the_causes_of_the_wait_add_up_to_it() {
        let told = figures(&burst(64), &[engine()], 16);
        let causes: f64 = told.iter().filter(|(name, _)| name.starts_with("cause_")).map(|(_, ms)| ms).sum();
        assert!((causes - told["queue_wait_mean_ms"]).abs() < 1e-6, "{told:?}");
        assert!(told["cause_batch_size_ms"] > 0.0 && told["cause_round_trip_ms"] > 0.0, "{told:?}");
        assert_eq!((told["failed"], told["goodput_percent"]), (0.0, 100.0));
    }

    #[test]
    fn ttft_holds_what_lies_before_the_queue_and_after_the_scheduler() {
        let told = figures(&burst(1), &[engine()], 16);
        let mut load = firstlight_sim::cost::Load::default();
        load.add(0, 5, true);
        let prefill = CostModel::default().forward(load).as_secs_f64() * 1e3;
        assert!((told["ttft_mean_ms"] - (1.0 + 0.1 + prefill + 2.0)).abs() < 1e-3, "{told:?}");
    }

    #[test]
    fn the_gaps_of_a_request_alone_are_its_decode_forwards() {
        let told = figures(&burst(1), &[engine()], 16);
        let mut load = firstlight_sim::cost::Load::default();
        load.add(8, 1, false);
        let decode = CostModel::default().forward(load).as_secs_f64() * 1e3;
        for figure in ["itl_p50_ms", "itl_p99_ms", "tpot_p50_ms"] {
            assert!(
                (told[figure] / decode - 1.0).abs() < 0.02,
                "{figure}: {told:?}, one forward is {decode} ms"
            );
        }
    }

    #[test]
    fn larger_rounds_and_more_engines_shorten_the_wait_of_a_burst() {
        let slow = figures(&burst(64), &[engine()], 4)["queue_wait_mean_ms"];
        assert!(figures(&burst(64), &[engine()], 64)["queue_wait_mean_ms"] < 0.5 * slow);
        assert!(figures(&burst(64), &[engine(); 4], 4)["queue_wait_mean_ms"] < 0.5 * slow);
    }

    #[test]
    fn a_replay_tells_how_much_of_it_is_beyond_what_was_recorded() {
        let told = figures(&burst(1), &[engine()], 16);
        assert_eq!(told[BEYOND_REACH], 100.0, "nothing was recorded");
    }

    #[test]
    fn a_request_that_is_refused_counts_as_failed() {
        let mut planned = burst(2);
        planned[1].arrival.request.prompt = Tokens(5_000);
        assert_eq!(figures(&planned, &[engine()], 16)["failed"], 1.0);
    }
}
