//! One self-contained HTML file of a run: no script, no network, readable on a phone and in print, a
//! table behind every picture, colours that colour-blind people can tell apart.
//!
//! - [`head`]: what was measured, and the figures people look for first
//! - [`chain`]: where TTFT goes: stacked bars of means
//! - [`timeline`]: one row per request
//! - [`spread`]: how TTFT and its parts are distributed
//! - [`causes`]: what requests waited for, over time
//! - [`knobs`]: limits in force, versions, definitions
//! - [`rows`]: the requests, as the pictures need them
//! - [`plot`], [`colour`]: pictures and what their colours mean

mod causes;
mod chain;
pub mod colour;
mod head;
mod knobs;
pub mod plot;
mod rows;
mod spread;
mod timeline;

use serde_json::{Map, Value};

use self::rows::Row;
use super::{Results, stats::Percentiles};

const STYLE: &str = include_str!("style.css");

/// The page of `results`; `rows` are the lines of `--jsonl-out`, and without them the pictures of single
/// requests are left out.
pub fn page(results: &Results, rows: &[Map<String, Value>]) -> String {
    let rows: Vec<Row> = rows.iter().filter_map(Row::of).collect();
    let mut body = head::head(results);
    if results.ttft.n > 0 {
        body += &section("Where TTFT goes", &chain::chain(results));
    }
    if !rows.is_empty() {
        body += &section("Timeline", &timeline::timeline(&rows));
        body += &section("Distributions", &spread::spread(&rows));
        body += &section("What requests waited for", &causes::causes(&rows));
    }
    body += &section("All figures", &head::figures(results));
    body += &section("Knobs and versions", &knobs::knobs(results));
    body += &section("What the figures mean", &knobs::definitions(results));
    document(&format!("{} · {}", results.run.label, results.run.model), &body)
}

/// A whole HTML file.
pub fn document(title: &str, body: &str) -> String {
    format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <link rel=\"icon\" href=\"data:,\"><title>{}</title><style>{STYLE}</style></head>\n<body>\n{body}\n</body></html>\n",
        escape(title)
    )
}

/// A part of the page.
pub fn section(title: &str, content: &str) -> String {
    format!("<section><h2>{}</h2>{content}</section>\n", escape(title))
}

/// A table of text cells; the first row is its head.
pub fn table(rows: &[Vec<String>]) -> String {
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

/// Text that is safe in HTML and in attributes.
pub fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// A number of ms for a table; a dash when it was not measured.
fn ms(value: Option<f64>) -> String {
    value.map_or("–".to_owned(), |v| format!("{v:.2}"))
}

fn behind_picture(rows: &[Vec<String>]) -> String {
    format!("<details><summary>as a table</summary>{}</details>", table(rows))
}

#[cfg(test)]
mod tests;
