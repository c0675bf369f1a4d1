//! Where TTFT goes: every part with its mean, its uncertainty, its share of the slowest, and its
//! percentiles; causes under `queue_wait`; then what can be said about the whole.

use std::fmt::Write as _;

use firstlight_proto::cause;

use super::{BAR, bar, ms, put};
use crate::{
    join::part_names,
    report::{
        results::{Results, SegmentStats},
        stats::Percentiles,
    },
};

const NAME: usize = 19;

pub fn write(out: &mut String, r: &Results) {
    out.push('\n');
    let slowest = format!("slowest 1 % (n = {})", r.slowest_1pct.n);
    put(
        out,
        format!(
            "{:<width$}{:>10} {:<12}{slowest:>21}{:>11}{:>11}{:>11}  ms",
            "Where TTFT goes",
            "mean",
            "",
            "p50",
            "p95",
            "p99",
            width = NAME + BAR + 2
        ),
    );
    let largest = r.segments.values().filter_map(|s| s.share_ms).fold(0.0, f64::max);
    for name in part_names() {
        let stats = r.segments.get(name).copied().unwrap_or_default();
        part(out, name, &stats, r.slowest_1pct.segments.get(name).copied(), largest);
        match name {
            "queue_wait" => causes(out, r, largest),
            "prefill" => inside_prefill(out, r),
            _ => {}
        }
    }
    let percent = r.unexplained.percent_of_ttft.map_or(String::new(), |p| format!("({p:.2} %)"));
    put(
        out,
        format!(
            "  {:<width$}{} {percent:<12}{:>21}",
            "unexplained",
            ms(r.unexplained.mean_ms),
            ms(r.slowest_1pct.unexplained_ms),
            width = NAME + BAR
        ),
    );
    put(
        out,
        format!(
            "  {:<width$}{} {:<12}{:>21}",
            "TTFT",
            ms(r.ttft.mean_ms),
            "",
            ms(r.slowest_1pct.ttft_mean_ms),
            width = NAME + BAR
        ),
    );
}

fn part(out: &mut String, name: &str, s: &SegmentStats, slowest: Option<f64>, largest: f64) {
    let bound = s.bound_ms.filter(|&b| b > 0.0).map_or(String::new(), |b| format!("± {b:.3}"));
    let mut line = format!(
        "  {name:<NAME$}{}{} {bound:<12}{:>21} {} {} {}",
        bar(s.share_ms, largest),
        ms(s.share_ms),
        ms(slowest),
        ms(s.times.p50_ms),
        ms(s.times.p95_ms),
        ms(s.times.p99_ms),
    );
    if s.unresolved > 0 {
        let _ = write!(line, "  unresolved in {}", s.unresolved);
    }
    if s.negative > 0 {
        let _ = write!(line, "  negative in {}", s.negative);
    }
    put(out, line);
}

/// Causes of stamp 3 → 6: those of `queue_wait`, and those that go on in the engine.
fn causes(out: &mut String, r: &Results, largest: f64) {
    if r.queue_wait_by_cause.is_empty() {
        return;
    }
    put(
        out,
        "    by cause, until the prefill starts (queue_wait + lost + dispatch + engine_wait):".to_owned(),
    );
    let whole: f64 = r.queue_wait_by_cause.values().sum();
    let mut by_size: Vec<_> = r.queue_wait_by_cause.iter().collect();
    by_size.sort_by(|a, b| b.1.total_cmp(a.1));
    for (name, &mean) in by_size {
        let share = if whole > 0.0 { format!("{:.0} %", 100.0 * mean / whole) } else { String::new() };
        let slowest = r.slowest_1pct.queue_wait_by_cause.get(name).copied();
        let name = format!("· {name}");
        put(
            out,
            format!(
                "    {name:<width$}{}{} {share:<12}{:>21}",
                bar(Some(mean), largest),
                ms(Some(mean)),
                ms(slowest),
                width = NAME - 2
            ),
        );
    }
    if let Some(behind) = r.behind_mean_ms.filter(|&b| b > 0.0) {
        put(out, format!("    of it behind others in line: {behind:.2} ms"));
    }
}

fn inside_prefill(out: &mut String, r: &Results) {
    if let (Some(own), Some(between), Some(chunks)) =
        (r.prefill.own_ms, r.prefill.between_ms, r.prefill.chunks)
    {
        put(out, format!("    own forwards {own:.2}, between chunks {between:.2}, {chunks:.1} chunks"));
    }
}

pub fn remarks(out: &mut String, r: &Results) {
    let crossing = |p: &Percentiles| p.mean_ms.map_or("–".to_owned(), |ms| format!("{ms:.3}"));
    put(
        out,
        format!(
            "round trips (exact): ingress + deliver {} ms, dispatch + return {} ms on average",
            crossing(&r.round_trips.ingress_deliver),
            crossing(&r.round_trips.dispatch_return)
        ),
    );
    let s = &r.spans;
    let lost = s.scheduler_final + s.engine_final;
    let mut told = format!("stamps: scheduler {} direct", s.scheduler_direct);
    let ways = [("engine", s.engine_direct, "direct"), ("engine", s.engine_relayed, "relayed")];
    for (who, n, how) in ways.into_iter().filter(|w| w.1 > 0) {
        let _ = write!(told, ", {who} {n} {how}");
    }
    if lost > 0 {
        let _ = write!(told, "; the final message stood in for {lost} lost spans");
    }
    if s.dropped > 0 {
        let _ = write!(told, "; the services dropped {} spans", s.dropped);
    }
    put(out, told);
    let closed =
        format!("{} of {} chains close", r.unexplained.closed, r.unexplained.closed + r.unexplained.open);
    let missing: Vec<String> =
        r.unexplained.missing.iter().map(|(what, n)| format!("{what} in {n}")).collect();
    let missing =
        if missing.is_empty() { String::new() } else { format!("; missing: {}", missing.join(", ")) };
    put(out, format!("{closed}{missing}"));
    if let Some(advice) = advice(r) {
        put(out, advice);
    }
}

/// The limit that most of the waiting is blamed on, and its value.
pub fn advice(r: &Results) -> Option<String> {
    let whole: f64 = r.queue_wait_by_cause.values().sum();
    let (name, &mean) = r.queue_wait_by_cause.iter().max_by(|a, b| a.1.total_cmp(b.1))?;
    let share = 100.0 * mean / whole;
    let of_ttft = 100.0 * mean / r.ttft.mean_ms?;
    if of_ttft < 10.0 {
        return None;
    }
    let cause = cause::ALL.into_iter().find(|c| c.label() == name)?;
    let what = match cause.limit() {
        Some(limit) => {
            let value = r.run.budget.get(limit).map_or(String::new(), |v| format!(" (now {v})"));
            format!("the limit is {limit}{value}: raise it for this run and compare")
        }
        None => "it is no limit of the budget: the engine's own work is what requests waited for".to_owned(),
    };
    Some(format!("→ {name} is {share:.0} % of the queue wait and {of_ttft:.0} % of TTFT; {what}"))
}
