//! One line per request, as JSONL or CSV. Times are ms; empty or `null` = not measured.

use std::{
    fs::File,
    io::{self, BufWriter, Write as _},
    path::Path,
};

use anyhow::Context as _;
use firstlight_proto::cause;
use serde_json::{Value, json};

use crate::{
    join::{Joined, part_names},
    target::Outcome,
};

/// Writes `joined` to `path`, one JSON object a line.
///
/// # Errors
/// Names the file that cannot be written.
pub fn write_jsonl(path: &Path, joined: &[Joined<'_>]) -> anyhow::Result<()> {
    write(path, |out| {
        for request in joined {
            writeln!(out, "{}", Value::Object(row(request).into_iter().collect()))?;
        }
        Ok(())
    })
}

/// Writes `joined` to `path` as CSV with a header line.
///
/// # Errors
/// Names the file that cannot be written.
pub fn write_csv(path: &Path, joined: &[Joined<'_>]) -> anyhow::Result<()> {
    write(path, |out| {
        for (i, request) in joined.iter().enumerate() {
            let row = row(request);
            if i == 0 {
                writeln!(out, "{}", row.iter().map(|field| field.0.as_str()).collect::<Vec<_>>().join(","))?;
            }
            writeln!(out, "{}", row.iter().map(|field| cell(&field.1)).collect::<Vec<_>>().join(","))?;
        }
        Ok(())
    })
}

fn write(path: &Path, body: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>) -> anyhow::Result<()> {
    let written = File::create(path).and_then(|file| {
        let mut out = BufWriter::new(file);
        body(&mut out)?;
        out.flush()
    });
    written.with_context(|| format!("writing {}", path.display()))
}

/// One request as the fields of its line, in order.
pub fn row(request: &Joined<'_>) -> Vec<(String, Value)> {
    let r = request.record;
    let chain = request.chain.as_ref();
    let ms = |ns: Option<i64>| ns.map_or(Value::Null, |ns| json!(ns as f64 / 1e6));
    let (outcome, error) = match &r.outcome {
        Outcome::Finished => ("finished", Value::Null),
        Outcome::Failed { kind, message } => (*kind, json!(message)),
    };
    let mut row = Vec::new();
    let mut put = |name: &str, value: Value| row.push((name.to_owned(), value));
    put("request_id", json!(r.id));
    put("run", json!(r.run));
    put("index", json!(r.index));
    put("outcome", json!(outcome));
    put("error", error);
    put("submit_start_ns", json!(r.submit_start.ns()));
    put("max_new_tokens", json!(r.max_new_tokens));
    put("prompt_tokens", json!(r.prompt_tokens));
    put("cached_tokens", json!(r.cached_tokens));
    put("output_tokens", json!(r.output_tokens()));
    put("ttft_ms", ms(r.ttft_ns()));
    put("tpot_ms", ms(r.tpot_ns()));
    put("latency_ms", ms(r.latency_ns()));
    put("add_request_ms", ms(r.submit_end.zip(r.sent).map(|(end, sent)| end.since(sent))));
    put("stream_open_ms", ms(r.stream_open.zip(r.sent).map(|(open, sent)| open.since(sent))));
    put("cap_wait_ms", ms(r.cap_wait_ns));
    for (i, name) in part_names().into_iter().enumerate() {
        put(&format!("{name}_ms"), ms(chain.and_then(|c| Some(c.parts[i]?.ns))));
    }
    put("unexplained_ms", ms(chain.map(|c| c.unexplained_ns)));
    put("queue_wait_total_ms", ms(chain.and_then(|c| Some(c.queue_wait_total?.ns))));
    put("behind_ms", ms(chain.and_then(|c| c.behind_ns)));
    for cause in cause::ALL {
        put(&format!("cause_{}_ms", cause.label()), ms(chain.map(|c| c.causes[cause as usize])));
    }
    put("missing", chain.map_or(Value::Null, |c| json!(c.missing.join("; "))));
    row
}

fn cell(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(s) if s.contains([',', '"', '\n']) => format!("\"{}\"", s.replace('"', "\"\"")),
        Value::String(s) => s.clone(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_with_commas_or_quotes_stays_one_cell() {
        assert_eq!(cell(&json!("a, \"b\"")), "\"a, \"\"b\"\"\"");
        assert_eq!(
            (cell(&json!("plain")), cell(&Value::Null), cell(&json!(1.5))),
            ("plain".into(), "".into(), "1.5".into())
        );
    }
}
