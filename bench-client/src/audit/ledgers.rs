//! The balances. Pure: records and scrapes go in, checks come out.

use firstlight_proto::{inject::Segment, v1::SchedulerTimeline};

use super::{Audit, Check, gauges::Gauge};
use crate::{join::Joined, observe::prometheus::Scrape, target::Outcome};

/// Sums of seconds may differ by this share: the services sum floats.
const SUM_SHARE: f64 = 1e-3;
/// Little's law may be off by this share beyond the uncertainty of sampling.
const LITTLE_SHARE: f64 = 0.02;

/// What the services exported around the run.
#[derive(Clone, Debug, Default)]
pub struct Scraped {
    /// The scheduler before and after.
    pub scheduler: (Scrape, Scrape),
    /// Each engine before and after.
    pub engines: Vec<(Scrape, Scrape)>,
    /// Requests pending and active at the scheduler, sampled over the run.
    pub in_system: Gauge,
}

/// Draws all balances of a run.
pub fn audit(joined: &[Joined<'_>], scraped: &Scraped) -> Audit {
    let book = Book { joined, scraped };
    let mut checks = book.requests();
    checks.extend(book.tokens());
    checks.extend(book.stamps());
    checks.extend(book.segments());
    checks.extend(book.little());
    Audit { checks }
}

struct Book<'a> {
    joined: &'a [Joined<'a>],
    scraped: &'a Scraped,
}

impl Book<'_> {
    fn requests(&self) -> Vec<Check> {
        let finished =
            |outcome| self.scheduler_where("firstlight_requests_finished_total", "outcome", outcome);
        let engine = |reason| self.engines_where("firstlight_engine_finished_total", "reason", reason);
        let received = self.scheduler("firstlight_requests_received_total");
        let queued = self.scheduler("firstlight_requests_queued_total");
        let completed: f64 = ["length", "eos", "stop_string", "stop_token"].into_iter().map(finished).sum();
        let by_engine = ["length", "eos", "stop_token"];
        vec![
            // A request whose connection broke may or may not have arrived.
            same("requests", ("client sent", self.sent()), ("scheduler received", received), self.broken()),
            same(
                "requests",
                ("scheduler received", received),
                ("scheduler queued + refused", queued + self.scheduler("firstlight_refusals_total")),
                0.0,
            ),
            same(
                "requests",
                ("scheduler queued", queued),
                ("scheduler finished", self.scheduler("firstlight_requests_finished_total")),
                0.0,
            ),
            same("completions", ("client", self.completed()), ("scheduler", completed), self.broken()),
            same(
                "completions that end in the engine",
                ("scheduler", by_engine.into_iter().map(finished).sum()),
                ("engines", by_engine.into_iter().map(engine).sum()),
                0.0,
            ),
        ]
    }

    fn tokens(&self) -> Vec<Check> {
        let client: u64 = self.joined.iter().map(|j| j.record.output_tokens()).sum();
        let scheduler = self.scheduler("firstlight_output_tokens_total");
        let engines = self.engines("firstlight_engine_generated_tokens_total");
        let cut_short = self.joined.iter().any(|j| !j.record.completed());
        // Tokens that were on their way when a request was cut short reach only some of the three.
        if cut_short
            || self.scheduler_where("firstlight_requests_finished_total", "outcome", "stop_string") > 0.0
        {
            return Vec::new();
        }
        vec![
            same("output tokens", ("client", client as f64), ("scheduler", scheduler), 0.0),
            same("output tokens", ("scheduler", scheduler), ("engines", engines), 0.0),
        ]
    }

    /// Every request that reached a first token must have its stamps from somewhere.
    fn stamps(&self) -> Vec<Check> {
        let first_tokens = self.joined.iter().filter(|j| j.record.first_token().is_some()).count() as f64;
        let with_stamps =
            self.joined.iter().filter_map(|j| j.chain.as_ref()).filter(|c| c.missing.is_empty());
        let observed = self.scheduler("firstlight_ttft_seconds_count");
        vec![
            same(
                "first tokens",
                ("client", first_tokens),
                ("complete chains", with_stamps.count() as f64),
                0.0,
            ),
            same("first tokens", ("client", first_tokens), ("scheduler", observed), self.cut_short()),
        ]
    }

    /// Sums of segments over the client's chains against the services' histograms.
    fn segments(&self) -> Vec<Check> {
        let of_scheduler = [Segment::Accept, Segment::QueueWait, Segment::EngineWait, Segment::Prefill];
        let of_engine = [Segment::EngineWait, Segment::Prefill];
        let chains = || self.joined.iter().filter_map(|j| j.chain.as_ref());
        let client = |s: Segment| {
            let ns: i64 = chains().filter_map(|c| c.segment(s)).map(|m| m.ns).sum();
            ns as f64 / 1e9
        };
        // A request cut short at its first token may be in one sum and not in the other.
        if self.cut_short() > 0.0 {
            return Vec::new();
        }
        let scheduler = |s: Segment| {
            let name = "firstlight_ttft_segment_seconds_sum";
            (s, "scheduler's histogram", self.scheduler_where(name, "segment", s.label()))
        };
        let engine = |s: Segment| {
            let name = "firstlight_engine_segment_seconds_sum";
            (s, "engines' histogram", self.engines_where(name, "segment", s.label()))
        };
        let both = of_scheduler.into_iter().map(scheduler).chain(of_engine.into_iter().map(engine));
        let check = |(s, who, theirs): (Segment, &str, f64)| {
            let tolerance = SUM_SHARE * client(s) + 1e-6;
            same(&format!("{} in s", s.label()), ("client's chains", client(s)), (who, theirs), tolerance)
        };
        let mut checks: Vec<Check> = both.map(check).collect();
        let waited: i64 = self.timelines().map(|t| t.queue_wait_ns).sum();
        if self.timelines().all(|t| t.resumes == 0) {
            let blocked = self.scheduler("firstlight_queue_blocked_seconds_total");
            let waited = waited as f64 / 1e9;
            let (left, right) = (("timelines", waited), ("scheduler's blocked seconds", blocked));
            checks.push(same("pending time in s", left, right, SUM_SHARE * waited + 1e-6));
        }
        checks
    }

    /// Little's law over everything in the scheduler: ∫ L dt = Σ W.
    fn little(&self) -> Vec<Check> {
        let in_system = |t: &SchedulerTimeline| (t.queued_ns != 0).then(|| t.finished_ns - t.queued_ns);
        let waited = self.timelines().filter_map(in_system).sum::<i64>() as f64 / 1e9;
        let gauge = &self.scraped.in_system;
        let tolerance = LITTLE_SHARE * waited + gauge.uncertainty(2 * self.joined.len());
        let (left, right) =
            (("Σ W of timelines", waited), ("∫ L of the scheduler's gauges", gauge.integral()));
        vec![same("Little's law, request × s", left, right, tolerance)]
    }

    fn timelines(&self) -> impl Iterator<Item = &SchedulerTimeline> {
        self.joined.iter().filter_map(|j| j.views.scheduler)
    }

    fn sent(&self) -> f64 {
        self.joined.iter().filter(|j| j.record.sent.is_some()).count() as f64
    }

    fn completed(&self) -> f64 {
        self.joined.iter().filter(|j| j.record.completed()).count() as f64
    }

    /// Requests of which the client cannot know how far they came.
    fn broken(&self) -> f64 {
        let unknown = |o: &Outcome| matches!(o, Outcome::Failed { kind: "unavailable" | "interrupted", .. });
        self.joined.iter().filter(|j| unknown(&j.record.outcome)).count() as f64
    }

    /// Requests that were queued and ended without completing.
    fn cut_short(&self) -> f64 {
        let queued = |j: &&Joined<'_>| j.views.scheduler.is_none_or(|s| s.queued_ns != 0);
        self.joined.iter().filter(|j| !j.record.completed()).filter(queued).count() as f64
    }

    fn scheduler(&self, name: &str) -> f64 {
        let (before, after) = &self.scraped.scheduler;
        after.sum(name) - before.sum(name)
    }

    fn scheduler_where(&self, name: &str, label: &str, value: &str) -> f64 {
        let (before, after) = &self.scraped.scheduler;
        after.sum_where(name, label, value) - before.sum_where(name, label, value)
    }

    fn engines(&self, name: &str) -> f64 {
        self.scraped.engines.iter().map(|(before, after)| after.sum(name) - before.sum(name)).sum()
    }

    fn engines_where(&self, name: &str, label: &str, value: &str) -> f64 {
        let grown = |(before, after): &(Scrape, Scrape)| {
            after.sum_where(name, label, value) - before.sum_where(name, label, value)
        };
        self.scraped.engines.iter().map(grown).sum()
    }
}

fn same(what: &str, left: (&str, f64), right: (&str, f64), tolerance: f64) -> Check {
    Check {
        what: what.to_owned(),
        left: (left.0.to_owned(), left.1),
        right: (right.0.to_owned(), right.1),
        tolerance,
    }
}

#[cfg(test)]
mod tests;
