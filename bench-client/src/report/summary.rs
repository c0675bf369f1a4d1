//! From joined requests to results.

use std::collections::BTreeMap;

use firstlight_proto::clock::Stamp;

use super::{
    breakdown::{Breakdown, breakdown, slowest},
    definitions::definitions,
    results::{
        Censored, ClockInfo, Estimate, Goodput, OverRepeats, PrefillStats, Repeat, Requests, Results,
        RoundTrips, RunInfo, SegmentStats, ServerView, Slowest, SpanCounts, Throughput, Unexplained,
    },
    slo::Slo,
    stats::{Samples, confidence_95},
    validity::{Fitness, judge},
};
use crate::{
    audit::Audit,
    join::{Chain, Joined, Source, part_names},
    target::{Outcome, Record},
};

/// What is known of a run besides its requests.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// What was asked of whom.
    pub run: RunInfo,
    /// The clocks at the end.
    pub clock: ClockInfo,
    /// Spans that the services dropped.
    pub dropped_spans: u64,
    /// The client itself.
    pub fitness: Fitness,
    /// Objectives to count requests by.
    pub slo: Option<Slo>,
    /// What a peer says of itself.
    pub server: Option<ServerView>,
    /// Balances with the services' own metrics.
    pub audit: Option<Audit>,
}

/// Adds up a run, or several repeats of one.
pub fn summarize(joined: &[Joined<'_>], facts: Facts) -> Results {
    let records: Vec<&Record> = joined.iter().map(|j| j.record).collect();
    let chains: Vec<&Chain> = joined.iter().filter_map(|j| j.chain.as_ref()).collect();
    let all = breakdown(chains.iter().copied());
    let ttft: Samples = records.iter().filter_map(|r| r.ttft_ns()).collect();
    let send_lag = of(&records, |r| Some(r.sent?.since(r.submit_start)));
    Results {
        requests: requests(&records),
        submit_wall_ms: submit_wall_ms(&records),
        add_request: of(&records, |r| Some(r.submit_end?.since(r.sent?))).percentiles(),
        stream_open: of(&records, |r| Some(r.stream_open?.since(r.sent?))).percentiles(),
        cap_wait: of(&records, |r| r.cap_wait_ns).percentiles(),
        ttft: ttft.percentiles(),
        ttft_from_sent: of(&records, |r| Some(r.first_token()?.since(r.sent?))).percentiles(),
        tpot: of(&records, |r| r.tpot_ns()).percentiles(),
        itl: itl_per_token(&records).percentiles(),
        itl_per_message: records
            .iter()
            .flat_map(|r| r.gaps().map(|g| g.0))
            .collect::<Samples>()
            .percentiles(),
        latency: of(&records, |r| r.latency_ns()).percentiles(),
        queue_wait_total: queue_wait(&chains).percentiles(),
        throughput: throughput(&records),
        segments: segments(&chains, all.as_ref()),
        slowest_1pct: slowest_1pct(&chains),
        queue_wait_by_cause: all.as_ref().map(Breakdown::causes).unwrap_or_default(),
        behind_mean_ms: mean_ms(chains.iter().filter_map(|c| c.behind_ns)),
        prefill: prefill(&chains),
        round_trips: RoundTrips {
            ingress_deliver: chains
                .iter()
                .filter_map(|c| c.client_round_trip_ns)
                .collect::<Samples>()
                .percentiles(),
            dispatch_return: chains
                .iter()
                .filter_map(|c| c.engine_round_trip_ns)
                .collect::<Samples>()
                .percentiles(),
        },
        unexplained: unexplained(&chains, all.as_ref()),
        spans: span_counts(&chains, facts.dropped_spans),
        censored: censored(joined),
        clock: facts.clock,
        repeats: repeats(joined),
        over_repeats: over_repeats(&repeats(joined)),
        goodput: facts.slo.map(|slo| goodput(&records, slo)),
        server: facts.server.map(|view| beside(view, ttft.mean())),
        audit: facts.audit,
        definitions: definitions(),
        validity: judge(&send_lag, &ttft, facts.fitness),
        run: facts.run,
    }
}

fn goodput(records: &[&Record], slo: Slo) -> Goodput {
    let met = records.iter().filter(|r| slo.met(r)).count();
    Goodput {
        slo: slo.to_string(),
        met,
        percent: 100.0 * met as f64 / records.len().max(1) as f64,
        requests_per_s: throughput(records).wall_s.map(|wall| met as f64 / wall),
    }
}

/// A peer's view with what it leaves of the client's TTFT.
fn beside(view: ServerView, ttft_ns: Option<f64>) -> ServerView {
    let explained = view.queue_ms.zip(view.prefill_ms).map(|(queue, prefill)| queue + prefill);
    let unexplained_ms = ttft_ns.zip(explained).map(|(ttft, explained)| ttft / 1e6 - explained);
    ServerView { unexplained_ms, ..view }
}

fn of(records: &[&Record], figure: impl Fn(&Record) -> Option<i64>) -> Samples {
    records.iter().filter_map(|r| figure(r)).collect()
}

fn mean_ms(ns: impl Iterator<Item = i64>) -> Option<f64> {
    ns.collect::<Samples>().mean().map(|ns| ns / 1e6)
}

fn queue_wait(chains: &[&Chain]) -> Samples {
    chains.iter().filter_map(|c| Some(c.queue_wait_total?.ns)).collect()
}

fn itl_per_token(records: &[&Record]) -> Samples {
    let gaps = records.iter().filter(|r| r.knows_tokens_per_message()).flat_map(|r| r.gaps());
    gaps.flat_map(|(ns, tokens)| std::iter::repeat_n(ns / i64::from(tokens), tokens as usize)).collect()
}

fn requests(records: &[&Record]) -> Requests {
    let mut out = Requests::default();
    for record in records {
        out.completion_tokens += record.output_tokens();
        if let Some(tokens) = record.prompt_tokens {
            *out.prompt_tokens.get_or_insert(0) += u64::from(tokens);
        }
        match &record.outcome {
            Outcome::Finished => out.completed += 1,
            Outcome::Failed { kind, .. } => {
                out.failed += 1;
                *out.failed_by_kind.entry((*kind).to_owned()).or_default() += 1;
            }
        }
    }
    out
}

/// Of the last repeat: the seed prints it for one run.
fn submit_wall_ms(records: &[&Record]) -> Option<f64> {
    let last_run = records.iter().map(|r| r.run).max()?;
    let of_run = || records.iter().filter(|r| r.run == last_run);
    let first = of_run().map(|r| r.submit_start).min()?;
    let last = of_run().filter_map(|r| r.sent).max()?;
    Some(last.since(first) as f64 / 1e6)
}

fn throughput(records: &[&Record]) -> Throughput {
    let runs = records.iter().map(|r| r.run).max().map_or(0, |last| last + 1);
    let wall = |run| {
        let of_run = || records.iter().filter(move |r| r.run == run);
        let first: Stamp = of_run().map(|r| r.submit_start).min()?;
        Some(of_run().filter_map(|r| r.ended).max()?.since(first))
    };
    let wall_ns: i64 = (0..runs).filter_map(wall).sum();
    if wall_ns <= 0 {
        return Throughput::default();
    }
    let wall_s = wall_ns as f64 / 1e9;
    let tokens: u64 = records.iter().map(|r| r.output_tokens()).sum();
    let completed = records.iter().filter(|r| r.completed()).count();
    Throughput {
        output_tokens_per_s: Some(tokens as f64 / wall_s),
        requests_per_s: Some(completed as f64 / wall_s),
        wall_s: Some(wall_s),
    }
}

fn segments(chains: &[&Chain], all: Option<&Breakdown>) -> BTreeMap<String, SegmentStats> {
    let stats = |part: usize| {
        let measured: Vec<_> = chains.iter().filter_map(|c| c.parts[part]).collect();
        SegmentStats {
            times: measured.iter().map(|m| m.ns).collect::<Samples>().percentiles(),
            bound_ms: mean_ms(measured.iter().map(|m| m.bound_ns)),
            negative: measured.iter().filter(|m| m.ns < 0).count(),
            unresolved: measured.iter().filter(|m| m.unresolved()).count(),
            share_ms: all.and_then(|b| b.parts_ms[part]),
        }
    };
    part_names().into_iter().enumerate().map(|(i, name)| (name.to_owned(), stats(i))).collect()
}

fn slowest_1pct(chains: &[&Chain]) -> Slowest {
    let Some(b) = breakdown(slowest(chains)) else { return Slowest::default() };
    Slowest {
        n: b.n,
        ttft_mean_ms: Some(b.ttft_ms),
        segments: b.parts(),
        queue_wait_by_cause: b.causes(),
        unexplained_ms: Some(b.unexplained_ms),
    }
}

fn prefill(chains: &[&Chain]) -> PrefillStats {
    let inside = || chains.iter().filter_map(|c| c.prefill);
    let chunks: u64 = inside().map(|p| u64::from(p.chunks)).sum();
    PrefillStats {
        own_ms: mean_ms(inside().map(|p| p.own_ns)),
        between_ms: mean_ms(inside().map(|p| p.between_ns)),
        chunks: (inside().count() > 0).then(|| chunks as f64 / inside().count() as f64),
    }
}

fn unexplained(chains: &[&Chain], all: Option<&Breakdown>) -> Unexplained {
    let closed = chains.iter().filter(|c| c.closed()).count();
    let mut missing = BTreeMap::new();
    for what in chains.iter().flat_map(|c| &c.missing) {
        *missing.entry((*what).to_owned()).or_default() += 1;
    }
    Unexplained {
        mean_ms: all.map(|b| b.unexplained_ms),
        percent_of_ttft: all.filter(|b| b.ttft_ms != 0.0).map(|b| 100.0 * b.unexplained_ms / b.ttft_ms),
        closed,
        open: chains.len() - closed,
        missing,
    }
}

fn span_counts(chains: &[&Chain], dropped: u64) -> SpanCounts {
    let scheduler = |s| chains.iter().filter(|c| c.scheduler_source == s).count();
    let engine = |s| chains.iter().filter(|c| c.engine_source == s).count();
    SpanCounts {
        scheduler_direct: scheduler(Source::Direct),
        scheduler_final: scheduler(Source::Final),
        scheduler_missing: scheduler(Source::Missing),
        engine_direct: engine(Source::Direct),
        engine_relayed: engine(Source::Relayed),
        engine_final: engine(Source::Final),
        engine_missing: engine(Source::Missing),
        dropped,
    }
}

fn censored(joined: &[Joined<'_>]) -> Censored {
    let without = || joined.iter().filter(|j| j.record.first_token().is_none() && j.record.sent.is_some());
    let wait = without().filter_map(|j| Some(j.record.ended?.since(j.record.submit_start)));
    Censored {
        n: without().count(),
        wait: wait.collect::<Samples>().percentiles(),
        queue_wait: without().filter_map(|j| j.censored_queue_wait_ns).collect::<Samples>().percentiles(),
    }
}

fn repeats(joined: &[Joined<'_>]) -> Vec<Repeat> {
    let runs = joined.iter().map(|j| j.record.run).max().map_or(0, |last| last + 1);
    let one = |run| {
        let of_run = || joined.iter().filter(move |j| j.record.run == run);
        let records: Vec<&Record> = of_run().map(|j| j.record).collect();
        let chains: Vec<&Chain> = of_run().filter_map(|j| j.chain.as_ref()).collect();
        Repeat {
            ttft: of(&records, |r| r.ttft_ns()).percentiles(),
            tpot: of(&records, |r| r.tpot_ns()).percentiles(),
            queue_wait_total: queue_wait(&chains).percentiles(),
            throughput: throughput(&records),
        }
    };
    (0..runs).map(one).collect()
}

fn over_repeats(repeats: &[Repeat]) -> Option<OverRepeats> {
    let estimate = |figure: &dyn Fn(&Repeat) -> Option<f64>| {
        let values: Vec<f64> = repeats.iter().filter_map(figure).collect();
        let half_width = confidence_95(&values)?;
        Some(Estimate { mean: values.iter().sum::<f64>() / values.len() as f64, half_width })
    };
    (repeats.len() > 1).then(|| OverRepeats {
        ttft_mean_ms: estimate(&|r| r.ttft.mean_ms),
        ttft_p99_ms: estimate(&|r| r.ttft.p99_ms),
        tpot_mean_ms: estimate(&|r| r.tpot.mean_ms),
        output_tokens_per_s: estimate(&|r| r.throughput.output_tokens_per_s),
    })
}
