//! The requests, as the pictures need them: read from the lines of `--jsonl-out`.

use firstlight_proto::cause;
use serde_json::{Map, Value};

use crate::join::{PARTS, part_names};

/// One request, times in ms.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// Its id.
    pub id: String,
    /// Intended send time.
    pub start: f64,
    /// TTFT.
    pub ttft: f64,
    /// End of its stream, from the start.
    pub latency: Option<f64>,
    /// Its parts; 0 where one was not measured.
    pub parts: [f64; PARTS],
    /// Queue wait by cause, by name.
    pub causes: Vec<(&'static str, f64)>,
}

impl Row {
    /// A request that had a first token.
    pub fn of(line: &Map<String, Value>) -> Option<Self> {
        let number = |name: &str| line.get(name).and_then(Value::as_f64);
        let parts = part_names().map(|name| number(&format!("{name}_ms")).unwrap_or(0.0));
        let causes = cause::ALL.iter().map(|c| c.label());
        let causes = causes.filter_map(|label| Some((label, number(&format!("cause_{label}_ms"))?)));
        Some(Self {
            id: line.get("request_id")?.as_str()?.to_owned(),
            start: number("submit_start_ns")? / 1e6,
            ttft: number("ttft_ms")?,
            latency: number("latency_ms"),
            parts,
            causes: causes.filter(|(_, ms)| *ms > 0.0).collect(),
        })
    }

    /// When its first token came, from the same origin as `start`.
    pub fn first_token(&self) -> f64 {
        self.start + self.ttft
    }
}
