//! `bench-client report`: one HTML file of a run, from its JSON and its lines per request.

use anyhow::Context as _;
use serde_json::{Map, Value};

use crate::{
    flags::ReportFlags,
    report::{Results, html},
};

/// Runs the command.
///
/// # Errors
/// Names the file that cannot be read, understood or written.
pub fn report(flags: &ReportFlags) -> anyhow::Result<()> {
    let read = |path: &std::path::Path| {
        std::fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))
    };
    let results: Results = serde_json::from_str(&read(&flags.json)?)
        .with_context(|| format!("{} was not written by run --json-out", flags.json.display()))?;
    let rows = match &flags.jsonl {
        Some(path) => {
            let parse = |line: &str| serde_json::from_str::<Map<String, Value>>(line);
            let rows: Result<Vec<_>, _> = read(path)?.lines().map(parse).collect();
            rows.with_context(|| format!("{} was not written by run --jsonl-out", path.display()))?
        }
        None => Vec::new(),
    };
    std::fs::write(&flags.out, html::page(&results, &rows))
        .with_context(|| format!("writing {}", flags.out.display()))?;
    println!("wrote {}", flags.out.display());
    Ok(())
}
