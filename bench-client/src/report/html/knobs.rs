//! Limits in force, versions, and what the figures mean.

use super::{escape, table};
use crate::report::Results;

/// Limits and versions.
pub fn knobs(r: &Results) -> String {
    let run = &r.run;
    let mut rows = vec![vec!["name".to_owned(), "value".to_owned()]];
    let facts = [
        ("model", run.model.clone()),
        ("device", run.device.clone()),
        ("dtype", run.dtype.clone()),
        ("threads per engine", run.threads.to_string()),
        ("engines", run.engines.to_string()),
        ("seed of the load", run.load_seed.to_string()),
        ("client version", run.client_version.clone()),
    ];
    let known = facts.into_iter().filter(|(_, value)| !value.is_empty());
    rows.extend(known.map(|(name, value)| vec![name.to_owned(), value]));
    rows.extend(run.budget.iter().map(|(name, value)| vec![name.clone(), value.clone()]));
    table(&rows)
}

/// The definitions.
pub fn definitions(r: &Results) -> String {
    let entry = |(name, meaning): (&String, &String)| {
        format!("<div><dt>{}</dt><dd>{}</dd></div>", escape(name), escape(meaning))
    };
    format!("<dl class=\"definitions\">{}</dl>", r.definitions.iter().map(entry).collect::<String>())
}
