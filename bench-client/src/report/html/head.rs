//! What was measured, whether to trust it, and the figures people look for first.

use super::{Percentiles, escape, ms, table};
use crate::report::{Results, text};

pub fn head(r: &Results) -> String {
    let verdict = &r.validity.verdict;
    let warnings = r.validity.reasons.iter().map(String::as_str);
    let interrupted = r.run.interrupted.then_some("Interrupted: measured up to the interruption.");
    let warnings: String =
        warnings.chain(interrupted).map(|w| format!("<p class=\"warning\">{}</p>", escape(w))).collect();
    let kinds: Vec<String> =
        r.requests.failed_by_kind.iter().map(|(kind, n)| format!("{kind} {n}")).collect();
    let kinds = if kinds.is_empty() { String::new() } else { format!(" ({})", kinds.join(", ")) };
    let advice = text::advice(r)
        .map_or(String::new(), |a| format!("<p class=\"advice\">{}</p>", escape(a.trim_start_matches("→ "))));
    format!(
        "<header><h1>{} <span class=\"verdict {verdict}\">{verdict}</span></h1>\
         <p>{} at {} · {}</p><p>{} completed, {} failed{}</p>{warnings}</header>\n{}{advice}\n",
        escape(&r.run.label),
        escape(&r.run.model),
        escape(&r.run.target),
        escape(&r.run.load),
        r.requests.completed,
        r.requests.failed,
        escape(&kinds),
        cards(r)
    )
}

/// The few figures that people look for first.
fn cards(r: &Results) -> String {
    let goodput = r.goodput.as_ref();
    let cards = [
        ("TTFT p50", r.ttft.p50_ms, "ms"),
        ("TTFT p99", r.ttft.p99_ms, "ms"),
        ("Queue wait p99", r.queue_wait_total.p99_ms, "ms"),
        ("TPOT p50", r.tpot.p50_ms, "ms"),
        ("Output", r.throughput.output_tokens_per_s, "tokens/s"),
        ("Goodput", goodput.and_then(|g| g.requests_per_s), "requests/s"),
    ];
    let card = |(name, value, unit): (&str, Option<f64>, &str)| {
        let value = value?;
        Some(format!("<div><dt>{name}</dt><dd>{value:.2} <small>{unit}</small></dd></div>"))
    };
    format!("<dl class=\"cards\">{}</dl>", cards.into_iter().filter_map(card).collect::<String>())
}

/// The whole table of figures.
pub fn figures(r: &Results) -> String {
    let line = |name: &str, p: &Percentiles| {
        vec![name.to_owned(), ms(p.mean_ms), ms(p.p50_ms), ms(p.p95_ms), ms(p.p99_ms), p.n.to_string()]
    };
    let prefill = r.segments.get("prefill").map(|s| s.times).unwrap_or_default();
    let rows = [
        ["ms", "mean", "p50", "p95", "p99", "n"].map(str::to_owned).to_vec(),
        line("add_request latency", &r.add_request),
        line("Queue wait", &r.queue_wait_total),
        line("Prefill->first token", &prefill),
        line("TTFT", &r.ttft),
        line("TTFT from sent", &r.ttft_from_sent),
        line("TPOT", &r.tpot),
        line("ITL", &r.itl),
        line("ITL per message", &r.itl_per_message),
        line("Latency", &r.latency),
        line("stream-open wait", &r.stream_open),
        line("wait for a slot (no TTFT)", &r.cap_wait),
    ];
    let rate = |x: Option<f64>| x.map_or("–".to_owned(), |x| format!("{x:.2}"));
    let goodput = r.goodput.as_ref().map_or(String::new(), |g| {
        let (rate, slo) = (rate(g.requests_per_s), escape(&g.slo));
        format!("<p>Goodput {rate} requests/s, {:.1} % of all requests within {slo}</p>", g.percent)
    });
    format!(
        "{}<p>Throughput {} tokens/s, {} requests/s</p>{goodput}",
        table(&rows),
        rate(r.throughput.output_tokens_per_s),
        rate(r.throughput.requests_per_s)
    )
}
