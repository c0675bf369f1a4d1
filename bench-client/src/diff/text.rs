//! The page a person reads: one sentence per statistic, then the table behind it.

use std::fmt::Write as _;

use super::{
    Diff,
    results::{Breakdown, GateVerdict, Movement, SideInfo},
};

/// Parts named in a sentence.
const NAMED: usize = 4;
/// Share of the movement of TTFT, or of a wait, from which a part, or a cause, is named although its
/// interval covers 0.
const WORTH_NAMING: f64 = 0.04;
const NAME: usize = 22;

/// The whole page.
pub fn page(diff: &Diff) -> String {
    let mut out = format!("{}\n", diff.load);
    for (letter, side) in [("A", &diff.a), ("B", &diff.b)] {
        let _ = writeln!(out, "{letter}  {}", side_line(side));
    }
    out.push('\n');
    for (name, breakdown) in &diff.ttft {
        let _ = writeln!(out, "{}", sentence(name, breakdown));
    }
    table(&mut out, diff);
    others(&mut out, diff);
    let method = &diff.method;
    let _ = writeln!(
        out,
        "\n{} pairs of requests in {}, blocks of {}; * the 95 % interval leaves out 0; percentiles are smoothed (Harrell–Davis)",
        method.pairs,
        runs(diff.a.runs),
        method.block
    );
    if diff.a.runs == 1 {
        out.push_str(
            "one run each: what differs from run to run is not in the intervals; --repeat-runs 5 tells\n",
        );
    }
    for gate in &diff.gates {
        let verdict = match gate.verdict {
            GateVerdict::Within => "ok",
            GateVerdict::Exceeded => "FAILED",
            GateVerdict::Undecided => {
                "undecided: the interval lies on both sides of the limit; more runs would tell"
            }
        };
        let moved = plus_minus(&gate.movement);
        let _ =
            writeln!(out, "fail if {} (limit {:+.2} ms): {moved} ms, {verdict}", gate.fail_if, gate.limit_ms);
    }
    out
}

/// `TTFT p99 +41 ± 9 ms (+8.1 %): queue_wait +38 ± 8 [batch_size +37], prefill +2 ± 3`
pub fn sentence(statistic: &str, b: &Breakdown) -> String {
    let whole = &b.ttft;
    let mut named: Vec<_> = b
        .segments
        .iter()
        .filter(|(_, m)| {
            let large = m.moved_ms.abs() >= WORTH_NAMING * whole.moved_ms.abs();
            m.is_told_from_noise() || (whole.is_told_from_noise() && large)
        })
        .collect();
    named.sort_by(|x, y| y.1.moved_ms.abs().total_cmp(&x.1.moved_ms.abs()));
    named.truncate(NAMED);
    let wait = named.iter().position(|(name, _)| matches!(*name, "queue_wait" | "engine_wait"));
    let words: Vec<String> = named
        .iter()
        .enumerate()
        .map(|(i, (name, m))| {
            let causes = if Some(i) == wait { causes(b, m) } else { String::new() };
            format!("{name} {}{causes}", plus_minus(m))
        })
        .collect();
    let words =
        if words.is_empty() { "no part moved beyond its interval".to_owned() } else { words.join(", ") };
    format!("TTFT {statistic:<4} {} ms{}: {words}", plus_minus(whole), percent(whole))
}

/// The causes that moved with a wait, largest first.
fn causes(b: &Breakdown, wait: &Movement) -> String {
    let large = |m: &Movement| m.moved_ms.abs() >= WORTH_NAMING * wait.moved_ms.abs();
    let mut moved: Vec<_> = b.causes.iter().filter(|(_, m)| m.is_told_from_noise() && large(m)).collect();
    moved.sort_by(|x, y| y.1.moved_ms.abs().total_cmp(&x.1.moved_ms.abs()));
    let words: Vec<String> = moved
        .iter()
        .take(NAMED)
        .map(|(name, m)| format!("{name} {:+.*}", decimals(m.half_width_ms), m.moved_ms))
        .collect();
    if words.is_empty() { String::new() } else { format!(" [{}]", words.join(", ")) }
}

fn table(out: &mut String, diff: &Diff) {
    let Some(mean) = diff.ttft.get("mean") else { return };
    let _ = writeln!(
        out,
        "\n{:<NAME$}{:>10} {:>10}   {:>20} {:>20} {:>20}  ms",
        "Where it moved", "A mean", "B mean", "mean", "at TTFT p50", "at TTFT p99"
    );
    let movements = |pick: &dyn Fn(&Breakdown) -> Option<Movement>| {
        ["mean", "p50", "p99"].map(|s| diff.ttft.get(s).and_then(pick))
    };
    row(out, "TTFT", movements(&|b| Some(b.ttft)));
    for (name, _) in &mean.segments {
        row(out, &format!("  {name}"), movements(&|b| named(&b.segments, name)));
    }
    if !mean.causes.is_empty() {
        out.push_str("until the prefill starts, by cause (queue_wait + lost + dispatch + engine_wait)\n");
    }
    for (name, _) in &mean.causes {
        row(out, &format!("  · {name}"), movements(&|b| named(&b.causes, name)));
    }
}

fn row(out: &mut String, name: &str, movements: [Option<Movement>; 3]) {
    let Some(mean) = movements[0] else { return };
    let cell = |m: Option<Movement>| {
        m.map_or("–".to_owned(), |m| {
            format!("{}{}", plus_minus(&m), if m.is_told_from_noise() { "*" } else { " " })
        })
    };
    let [a, b, c] = movements.map(cell);
    let _ = writeln!(out, "{name:<NAME$}{:>10.2} {:>10.2}   {a:>20} {b:>20} {c:>20}", mean.a_ms, mean.b_ms);
}

fn others(out: &mut String, diff: &Diff) {
    let _ = writeln!(
        out,
        "\n{:<NAME$}{:>10} {:>10}   {:>20} {:>20} {:>20}  ms",
        "", "A mean", "B mean", "mean", "its p50", "its p99"
    );
    for (name, figure) in
        [("TPOT", "tpot"), ("Latency", "latency"), ("Queue wait (3 → 6)", "queue_wait_total")]
    {
        row(out, name, ["mean", "p50", "p99"].map(|s| diff.figures.get(&format!("{figure}_{s}")).copied()));
    }
}

fn named(list: &[(&'static str, Movement)], name: &str) -> Option<Movement> {
    list.iter().find(|(n, _)| *n == name).map(|(_, m)| *m)
}

fn side_line(side: &SideInfo) -> String {
    let invalid = if side.invalid { "   INVALID: the client was not fit to measure" } else { "" };
    format!(
        "{}: {} requests in {}, {} failed{invalid}",
        side.label,
        side.requests,
        runs(side.runs),
        side.failed
    )
}

fn runs(n: usize) -> String {
    if n == 1 { "1 run".to_owned() } else { format!("{n} runs") }
}

fn percent(m: &Movement) -> String {
    m.percent.map_or(String::new(), |p| format!(" ({p:+.1} %)"))
}

/// As many decimals as the uncertainty deserves.
fn plus_minus(m: &Movement) -> String {
    let d = decimals(m.half_width_ms);
    format!("{:+.d$} ± {:.d$}", m.moved_ms, m.half_width_ms)
}

fn decimals(half_width: f64) -> usize {
    match half_width {
        h if h >= 5.0 => 0,
        h if h >= 0.5 => 1,
        h if h >= 0.05 => 2,
        _ => 3,
    }
}
