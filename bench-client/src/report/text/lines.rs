//! The seed's lines, under the seed's names, and what a run of several passes adds to them.

use super::{ms, put};
use crate::report::{
    results::Results,
    stats::{ENOUGH_FOR_P99, Percentiles},
};

pub fn write(out: &mut String, r: &Results) {
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
    if r.itl_per_message.n != r.itl.n {
        row("ITL per message", &r.itl_per_message);
    }
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
