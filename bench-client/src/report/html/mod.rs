//! One self-contained HTML file of a run: no script, no network, readable on a phone and in print, a
//! table behind every picture, colours that colour-blind people can tell apart.
//!
//! - [`svg`]: shapes, colours and escaping
//! - [`chain`]: where TTFT goes: stacked bars of means
//! - [`timeline`]: one row per request
//! - [`spread`]: how TTFT and its parts are distributed
//! - [`causes`]: what requests waited for, over time
//! - [`rows`]: the requests, as the pictures need them

mod causes;
mod chain;
mod rows;
mod spread;
mod svg;
mod timeline;

use serde_json::{Map, Value};

use self::{rows::Row, svg::escape};
use super::{Results, stats::Percentiles};

const STYLE: &str = include_str!("style.css");

/// The page of `results`; `rows` are the lines of `--jsonl-out`, and without them the pictures of single
/// requests are left out.
pub fn page(results: &Results, rows: &[Map<String, Value>]) -> String {
    let rows: Vec<Row> = rows.iter().filter_map(Row::of).collect();
    let mut sections = vec![head(results), figures(results)];
    if results.ttft.n > 0 {
        sections.push(chain::section(results));
    }
    if !rows.is_empty() {
        sections.push(timeline::section(&rows));
        sections.push(spread::section(&rows));
        sections.push(causes::section(&rows));
    }
    sections.push(knobs(results));
    format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <link rel=\"icon\" href=\"data:,\"><title>{} · {}</title><style>{STYLE}</style></head>\n<body>\n{}\n</body></html>\n",
        escape(&results.run.label),
        escape(&results.run.model),
        sections.join("\n")
    )
}

/// A number of ms for a table; a dash when it was not measured.
fn ms(value: Option<f64>) -> String {
    value.map_or("–".to_owned(), |v| format!("{v:.2}"))
}

/// A table of text cells; the first row is its head.
fn table(rows: &[Vec<String>]) -> String {
    let line = |tag: &str, cells: &[String]| {
        let cells: String = cells.iter().map(|c| format!("<{tag}>{}</{tag}>", escape(c))).collect();
        format!("<tr>{cells}</tr>")
    };
    let Some((head, body)) = rows.split_first() else { return String::new() };
    let body: String = body.iter().map(|row| line("td", row)).collect();
    format!(
        "<div class=\"scroll\"><table><thead>{}</thead><tbody>{body}</tbody></table></div>",
        line("th", head)
    )
}

fn behind_picture(rows: &[Vec<String>]) -> String {
    format!("<details><summary>as a table</summary>{}</details>", table(rows))
}

fn head(r: &Results) -> String {
    let verdict = &r.validity.verdict;
    let reasons: String = r.validity.reasons.iter().map(|x| format!("<p>{}</p>", escape(x))).collect();
    let interrupted =
        if r.run.interrupted { "<p>Interrupted: measured up to the interruption.</p>" } else { "" };
    format!(
        "<h1>{} · {}</h1><p>{} · {} · completed {} · failed {} · <span class=\"verdict {verdict}\">{verdict}</span></p>\
         {reasons}{interrupted}",
        escape(&r.run.label),
        escape(&r.run.model),
        escape(&r.run.load),
        escape(&r.run.target),
        r.requests.completed,
        r.requests.failed,
    )
}

fn figures(r: &Results) -> String {
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
        line("TPOT", &r.tpot),
        line("ITL", &r.itl),
        line("Latency", &r.latency),
    ];
    let rate = |x: Option<f64>| x.map_or("–".to_owned(), |x| format!("{x:.2}"));
    format!(
        "{}<p>Throughput {} tokens/s, {} requests/s</p>",
        table(&rows),
        rate(r.throughput.output_tokens_per_s),
        rate(r.throughput.requests_per_s)
    )
}

fn knobs(r: &Results) -> String {
    let mut rows = vec![vec!["name".to_owned(), "value".to_owned()]];
    let facts = [
        ("device", r.run.device.clone()),
        ("dtype", r.run.dtype.clone()),
        ("threads per engine", r.run.threads.to_string()),
        ("engines", r.run.engines.to_string()),
        ("client version", r.run.client_version.clone()),
    ];
    rows.extend(facts.into_iter().map(|(name, value)| vec![name.to_owned(), value]));
    rows.extend(r.run.budget.iter().map(|(name, value)| vec![name.clone(), value.clone()]));
    let definitions: String = r
        .definitions
        .iter()
        .map(|(name, meaning)| format!("<p><b>{}</b>: {}</p>", escape(name), escape(meaning)))
        .collect();
    format!("<h2>Knobs and versions</h2>{}<h2>What the figures mean</h2>{definitions}", table(&rows))
}

#[cfg(test)]
mod tests;
