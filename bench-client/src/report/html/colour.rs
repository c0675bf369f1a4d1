//! Colours that colour-blind people can tell apart, and what they mean.

use firstlight_proto::cause;

use super::escape;
use crate::join::part_names;

/// Okabe and Ito's colours (2008) and three of Tol's, in the order of the parts of TTFT.
const PARTS: [&str; 10] = [
    "#999999", "#56b4e9", "#f0e442", "#d55e00", "#cc79a7", "#e69f00", "#0072b2", "#009e73", "#332288",
    "#000000",
];
/// In the order of the causes.
const CAUSES: [&str; 11] = [
    "#d55e00", "#0072b2", "#f0e442", "#009e73", "#cc79a7", "#e69f00", "#000000", "#56b4e9", "#999999",
    "#882255", "#332288",
];
/// Lines differ by colour and by dashes.
const LINES: [(&str, &str); 6] = [
    ("#0072b2", ""),
    ("#d55e00", "7 3"),
    ("#009e73", "2 3"),
    ("#cc79a7", "10 3 2 3"),
    ("#332288", "4 2"),
    ("#e69f00", "1 2"),
];
/// Fills that dark text is read on; white on all others.
const LIGHT: [&str; 6] = ["#999999", "#56b4e9", "#f0e442", "#cc79a7", "#e69f00", "#e8e8e8"];

/// Colour of the `index`-th part.
pub fn part(index: usize) -> &'static str {
    PARTS[index % PARTS.len()]
}

/// Colour of a cause, by name.
pub fn cause(name: &str) -> &'static str {
    let index = cause::ALL.iter().position(|c| c.label() == name).unwrap_or(0);
    CAUSES[index % CAUSES.len()]
}

/// Colour and dashes of the `index`-th line.
pub fn line(index: usize) -> (&'static str, &'static str) {
    LINES[index % LINES.len()]
}

/// Colour of text on `fill`.
pub fn text_on(fill: &str) -> &'static str {
    if LIGHT.contains(&fill) { "#1b1b1b" } else { "#ffffff" }
}

/// What the colours of the parts mean.
pub fn parts_key() -> String {
    key(part_names().into_iter().enumerate().map(|(i, name)| (name, part(i))))
}

/// What colours mean.
pub fn key<'a>(entries: impl Iterator<Item = (&'a str, &'a str)>) -> String {
    let entries: String = entries
        .map(|(name, colour)| format!("<li><i style=\"background:{colour}\"></i>{}</li>", escape(name)))
        .collect();
    format!("<ul class=\"key\">{entries}</ul>")
}
