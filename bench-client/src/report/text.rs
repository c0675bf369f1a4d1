//! The page a person reads: aligned, units once, nothing printed that was not measured.

use std::fmt::Write as _;

use firstlight_proto::cause;

use super::{
    results::{Results, SegmentStats},
    stats::{ENOUGH_FOR_P99, Percentiles},
};
use crate::join::part_names;

const NAME: usize = 19;
const BAR: usize = 12;

/// The whole page, with what the figures mean when that is wanted.
pub fn page(r: &Results, with_definitions: bool) -> String {
    let mut out = String::new();
    header(&mut out, r);
    lines(&mut out, r);
    if r.ttft.n > 0 && r.spans.scheduler_missing < r.ttft.n {
        breakdown(&mut out, r);
        remarks(&mut out, r);
    } else if r.ttft.n > 0 {
        server(&mut out, r);
    }
    clocks(&mut out, r);
    client(&mut out, r);
    for reason in &r.validity.reasons {
        put(&mut out, format!("INVALID: {reason}"));
    }
    if with_definitions {
        out.push('\n');
        for (name, meaning) in &r.definitions {
            put(&mut out, format!("{name}: {meaning}"));
        }
    }
    out
}

fn header(out: &mut String, r: &Results) {
    let run = &r.run;
    let threads = if run.threads == 1 { "1 thread".to_owned() } else { format!("{} threads", run.threads) };
    let dtype =
        if matches!(run.dtype.as_str(), "" | "none") { String::new() } else { format!("{}, ", run.dtype) };
    let device = match run.engines {
        0 if run.api == "firstlight" => "no engine".to_owned(),
        0 => format!("{} at {}", run.api, run.target),
        1 => format!("{dtype}{}, {threads}", run.device),
        n => format!("{dtype}{}, {n} engines × {threads}", run.device),
    };
    put(out, format!("{} · {} ({device}) · {}", run.label, run.model, run.load));
    let kinds: Vec<String> =
        r.requests.failed_by_kind.iter().map(|(kind, n)| format!("{kind} {n}")).collect();
    let kinds = if kinds.is_empty() { String::new() } else { format!(" ({})", kinds.join(", ")) };
    let prompt = r.requests.prompt_tokens.map_or("–".to_owned(), |n| n.to_string());
    put(
        out,
        format!(
            "completed {}   failed {}{kinds}   prompt tokens {prompt}   completion tokens {}   {}",
            r.requests.completed, r.requests.failed, r.requests.completion_tokens, r.validity.verdict
        ),
    );
    if !run.budget.is_empty() {
        let limits: Vec<String> = run.budget.iter().map(|(name, value)| format!("{name} {value}")).collect();
        put(out, format!("budget: {}", limits.join(", ")));
    }
    if run.interrupted {
        put(out, "interrupted: what follows was measured up to the interruption".to_owned());
    }
    out.push('\n');
}

fn lines(out: &mut String, r: &Results) {
    put(out, format!("{:<26}{:>10} {:>10} {:>10}  ms", "", "p50", "p95", "p99"));
    let prefill = r.segments.get("prefill").map(|s| s.times).unwrap_or_default();
    let mut few = false;
    let mut row = |name: &str, p: &Percentiles| {
        few |= p.n > 0 && p.n < ENOUGH_FOR_P99;
        let mark = if p.n > 0 && p.n < ENOUGH_FOR_P99 { "*" } else { "" };
        put(out, format!("{name:<26}{} {} {}{mark}", ms(p.p50_ms), ms(p.p95_ms), ms(p.p99_ms)));
    };
    row("add_request latency", &r.add_request);
    row("Queue wait", &r.queue_wait_total);
    row("Prefill->first token", &prefill);
    row("TTFT", &r.ttft);
    row("TTFT from sent", &r.ttft_from_sent);
    row("TPOT", &r.tpot);
    row("ITL", &r.itl);
    row("Latency", &r.latency);
    row("stream-open wait", &r.stream_open);
    if r.cap_wait.n > 0 {
        row("wait for a slot (no TTFT)", &r.cap_wait);
    }
    let rate = |x: Option<f64>| x.map_or("–".to_owned(), |x| format!("{x:.2}"));
    let (tokens, requests) = (r.throughput.output_tokens_per_s, r.throughput.requests_per_s);
    put(
        out,
        format!(
            "{:<26}{:>10} tokens/s (completion), {} requests/s",
            "Throughput",
            rate(tokens),
            rate(requests)
        ),
    );
    if let Some(g) = &r.goodput {
        let share = format!("{} requests/s, {:.1} % of all ({})", rate(g.requests_per_s), g.percent, g.slo);
        put(out, format!("{:<26}{share:>10}", "Goodput"));
    }
    if let Some(wall) = r.submit_wall_ms {
        put(out, format!("{:<26}{:>10.2} ms", "Submit wall", wall));
    }
    if few {
        put(out, format!("* p99 of fewer than {ENOUGH_FOR_P99} samples: little more than the maximum"));
    }
    if let Some(over) = &r.over_repeats {
        out.push('\n');
        put(out, format!("over {} runs, mean ± 95 % confidence", r.repeats.len()));
        let figures = [
            ("TTFT mean", over.ttft_mean_ms, "ms"),
            ("TTFT p99", over.ttft_p99_ms, "ms"),
            ("TPOT mean", over.tpot_mean_ms, "ms"),
            ("Throughput", over.output_tokens_per_s, "tokens/s"),
        ];
        for (name, estimate, unit) in figures {
            if let Some(e) = estimate {
                put(out, format!("  {name:<24}{:>10.2} ± {:.2} {unit}", e.mean, e.half_width));
            }
        }
    }
    if r.censored.n > 0 {
        let wait = r
            .censored
            .wait
            .mean_ms
            .map_or(String::new(), |w| format!(", having waited {w:.2} ms on average"));
        put(
            out,
            format!("{} requests ended without a first token{wait}; they are in no line above", r.censored.n),
        );
    }
}

fn breakdown(out: &mut String, r: &Results) {
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

fn remarks(out: &mut String, r: &Results) {
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
fn advice(r: &Results) -> Option<String> {
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

fn clocks(out: &mut String, r: &Results) {
    let Some(scheduler) = &r.clock.scheduler else { return };
    let point = |p: &super::results::ClockPoint| {
        if p.same_clock {
            "same clock (0 exactly)".to_owned()
        } else {
            format!("{:+.3} ± {:.3} ms", p.offset_ms, p.bound_ms)
        }
    };
    let mut line = format!("clocks: scheduler {}", point(scheduler));
    for (name, engine) in &r.clock.engines {
        let _ = write!(line, ", {name} {}", point(engine));
    }
    if let (Some(residual), Some(bound)) = (r.clock.loop_residual_ms, r.clock.loop_bound_ms) {
        let _ = write!(line, ", loop residual {residual:+.3} (bound {bound:.3}) ms");
    }
    put(out, line);
}

/// A server that tells no stamps: what it says of itself, beside what the client saw.
fn server(out: &mut String, r: &Results) {
    out.push('\n');
    let Some(view) = &r.server else {
        put(out, "this server tells no stamps: where its TTFT goes is not known".to_owned());
        return;
    };
    put(out, format!("{} says of itself, mean ms", view.server));
    let figures = [
        ("TTFT, client", r.ttft.mean_ms),
        ("TTFT, its own", view.ttft_ms),
        ("queue", view.queue_ms),
        ("prefill", view.prefill_ms),
        ("prefill per prompt token", view.prefill_ms_per_prompt_token),
        ("unexplained", view.unexplained_ms),
    ];
    for (name, value) in figures.into_iter().filter(|f| f.1.is_some()) {
        put(out, format!("  {name:<24}{}", ms(value)));
    }
}

/// What the client itself may have added.
fn client(out: &mut String, r: &Results) {
    let v = &r.validity;
    let lag = |x: Option<f64>| x.map(|ms| format!("{ms:.2} ms"));
    let said = [
        lag(v.send_lag_p99_ms).map(|x| format!("send lag p99 {x}")),
        lag(v.own_send_lag_p99_ms)
            .zip(lag(v.own_receive_lag_p99_ms))
            .map(|(send, receive)| format!("against a null server: send {send}, receive {receive}")),
        v.cpu_cores.map(|cores| format!("{cores:.2} cores used")),
    ];
    let said: Vec<String> = said.into_iter().flatten().collect();
    if !said.is_empty() {
        put(out, format!("client: {}", said.join("; ")));
    }
}

fn put(out: &mut String, line: String) {
    out.push_str(line.trim_end());
    out.push('\n');
}

fn ms(value: Option<f64>) -> String {
    value.map_or(format!("{:>10}", "–"), |v| format!("{v:>10.2}"))
}

/// A bar of eighths of a character, padded to a fixed width.
fn bar(value: Option<f64>, largest: f64) -> String {
    const EIGHTHS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
    let share = if largest > 0.0 { (value.unwrap_or(0.0) / largest).clamp(0.0, 1.0) } else { 0.0 };
    let eighths = (share * (BAR * 8) as f64).round() as usize;
    let drawn = format!("{}{}", "█".repeat(eighths / 8), EIGHTHS[eighths % 8]);
    format!("{drawn:<BAR$}")
}

#[cfg(test)]
mod tests;
