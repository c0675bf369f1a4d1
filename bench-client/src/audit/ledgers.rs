//! The balances. Pure: records and scrapes go in, checks come out.

use firstlight_proto::{
    inject::Segment,
    v1::{EngineTimeline, SchedulerTimeline},
};

use super::{Audit, Check, gauges::Gauge};
use crate::{
    join::{Joined, Source},
    observe::prometheus::Scrape,
    target::Outcome,
};

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
            same(
                "completions",
                ("client", self.completed()),
                ("scheduler", completed),
                self.broken() + self.unsure(),
            ),
            same(
                "completions that end in the engine",
                ("scheduler", by_engine.into_iter().map(finished).sum()),
                ("engines", by_engine.into_iter().map(engine).sum()),
                self.hung_up(),
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

    /// Every request that reached a first token must have its stamps from somewhere, whether or not its client
    /// was still there to see it.
    fn stamps(&self) -> Vec<Check> {
        let first_tokens = self.joined.iter().filter(|j| j.record.first_token().is_some()).count() as f64;
        let with_stamps =
            self.joined.iter().filter_map(|j| j.chain.as_ref()).filter(|c| c.missing.is_empty());
        let told = self.timelines().filter(|t| t.first_token_ns != 0).count() as f64;
        let observed = self.scheduler("firstlight_ttft_seconds_count");
        vec![
            same(
                "first tokens",
                ("client", first_tokens),
                ("complete chains", with_stamps.count() as f64),
                0.0,
            ),
            same("first tokens", ("timelines", told), ("scheduler's histogram", observed), 0.0),
        ]
    }

    /// Sums of segments over the timelines that the client joined against the services' histograms.
    fn segments(&self) -> Vec<Check> {
        let scheduler = |s: Segment| {
            let name = "firstlight_ttft_segment_seconds_sum";
            ("scheduler's histogram", self.scheduler_where(name, "segment", s.label()))
        };
        let engine = |s: Segment| {
            let name = "firstlight_engine_segment_seconds_sum";
            ("engines' histogram", self.engines_where(name, "segment", s.label()))
        };
        let first_token = |j: &&Joined<'_>| j.views.scheduler.is_some_and(|s| s.first_token_ns != 0);
        let served = || self.joined.iter().filter(first_token);
        let scheduled = |length: fn(&SchedulerTimeline) -> i64| {
            served().filter_map(|j| j.views.scheduler).map(length).sum::<i64>() as f64 / 1e9
        };
        let computed = |length: fn(&EngineTimeline) -> i64| {
            served().filter_map(|j| j.views.engine).map(length).sum::<i64>() as f64 / 1e9
        };
        let attempted = |length: fn(&EngineTimeline) -> i64| {
            self.joined.iter().flat_map(attempts).map(length).sum::<i64>() as f64 / 1e9
        };
        let engine_wait: fn(&EngineTimeline) -> i64 = |e| e.admit_ns - e.received_ns;
        let prefill: fn(&EngineTimeline) -> i64 = |e| e.first_token_ns - e.admit_ns;
        let check = |s: Segment, ours: f64, theirs: (&str, f64)| {
            let tolerance = SUM_SHARE * ours + 1e-6;
            same(&format!("{} in s", s.label()), ("joined timelines", ours), theirs, tolerance)
        };
        use Segment::{Accept, EngineWait, Prefill, QueueWait};
        let mut checks = vec![
            check(Accept, scheduled(|s| s.queued_ns - s.received_ns), scheduler(Accept)),
            check(QueueWait, scheduled(|s| s.queue_wait_ns), scheduler(QueueWait)),
            check(EngineWait, computed(engine_wait), scheduler(EngineWait)),
            check(Prefill, computed(prefill), scheduler(Prefill)),
            check(EngineWait, attempted(engine_wait), engine(EngineWait)),
            check(Prefill, attempted(prefill), engine(Prefill)),
        ];
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
        let in_system = |t: &SchedulerTimeline| {
            (t.queued_ns != 0 && t.finished_ns != 0).then(|| t.finished_ns - t.queued_ns)
        };
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

    /// Requests of which the client cannot know whether they arrived.
    fn broken(&self) -> f64 {
        let unknown = |j: &&Joined<'_>| {
            let cut = matches!(j.record.outcome, Outcome::Failed { kind: "unavailable" | "interrupted", .. });
            let given_up = j.record.is_cancelled() && j.record.submit_end.is_none();
            cut || (given_up && j.views.scheduler.is_none())
        };
        self.joined.iter().filter(unknown).count() as f64
    }

    /// Requests that this client hung up on: an engine may have completed them before the news arrived.
    fn hung_up(&self) -> f64 {
        self.joined.iter().filter(|j| j.record.is_cancelled()).count() as f64
    }

    /// Those of which the scheduler does not say that they were cancelled.
    fn unsure(&self) -> f64 {
        let unsure = |j: &&Joined<'_>| j.record.is_cancelled() && j.views.outcome != Some("cancelled");
        self.joined.iter().filter(unsure).count() as f64
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

/// Every attempt of a request that reached a first token in an engine.
fn attempts<'a>(joined: &'a Joined<'_>) -> impl Iterator<Item = &'a EngineTimeline> {
    let heard = joined.views.attempts.iter().map(|attempt| &attempt.timeline);
    // The final message stands in for the span of its attempt.
    let stood_in = joined.views.engine.filter(|_| joined.views.engine_source == Source::Final);
    heard.chain(stood_in)
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
