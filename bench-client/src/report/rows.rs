//! One line per request, as JSONL or CSV. Times are ms; empty or `null` = not measured.

use std::{
    fs::File,
    io::{self, BufWriter, Write as _},
    path::Path,
};

use anyhow::Context as _;
use firstlight_proto::{cause, clock::Stamp, inject::Segment};
use serde_json::{Value, json};

use super::Results;
use crate::{
    join::{Joined, Views, part_names},
    target::Outcome,
};

/// Writes `joined` to `path`, one JSON object a line.
///
/// # Errors
/// Names the file that cannot be written.
pub fn write_jsonl(path: &Path, joined: &[Joined<'_>], results: &Results) -> anyhow::Result<()> {
    write(path, |out| {
        for request in joined {
            writeln!(out, "{}", Value::Object(row(request, results).into_iter().collect()))?;
        }
        Ok(())
    })
}

/// Writes `joined` to `path` as CSV with a header line.
///
/// # Errors
/// Names the file that cannot be written.
pub fn write_csv(path: &Path, joined: &[Joined<'_>], results: &Results) -> anyhow::Result<()> {
    write(path, |out| {
        for (i, request) in joined.iter().enumerate() {
            let row = row(request, results);
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

/// One request as the fields of its line, in order; the last ones are of the run, so that a file of
/// lines says by itself which load it measured.
pub fn row(request: &Joined<'_>, results: &Results) -> Vec<(String, Value)> {
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
    let asked = request.views.asked;
    put("tenant", json!(asked.map(|asked| asked.tenant)));
    put("class", json!(asked.map(|asked| &asked.class)));
    put("timeout_ms", ms(timeout_ns(&request.views)));
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
    row.extend(provenance(request));
    row.extend(of_run(request, results));
    row
}

/// From stamp 2 until its caller stops waiting.
fn timeout_ns(views: &Views<'_>) -> Option<i64> {
    let deadline_ns = views.asked.map(|asked| asked.deadline_ns).filter(|&ns| ns != 0)?;
    Some(deadline_ns - views.scheduler?.received_ns)
}

/// What was asked, and of which run: a file of lines says by itself which load it measured.
fn of_run(request: &Joined<'_>, results: &Results) -> [(String, Value); 5] {
    let run = &results.run;
    [
        ("fingerprint", json!(format!("{:016x}", request.record.fingerprint))),
        ("label", json!(run.label)),
        ("load", json!(run.load)),
        ("load_seed", json!(run.load_seed)),
        ("validity", json!(results.validity.verdict)),
    ]
    .map(|(name, value)| (name.to_owned(), value))
}

/// How sure the crossing segments are, how the stamps came, and the stamps themselves, each on the clock of
/// the process that took it.
fn provenance(request: &Joined<'_>) -> Vec<(String, Value)> {
    let mut row = Vec::new();
    let mut put = |name: &str, value: Value| row.push((name.to_owned(), value));
    for segment in [Segment::Ingress, Segment::Dispatch, Segment::Return, Segment::Deliver] {
        let bound = request.chain.as_ref().and_then(|c| Some(c.segment(segment)?.bound_ns));
        put(&format!("{}_bound_ms", segment.label()), bound.map_or(Value::Null, |ns| json!(ns as f64 / 1e6)));
    }
    let (views, record) = (&request.views, request.record);
    put("scheduler_stamps", json!(views.scheduler_source.label()));
    put("engine_stamps", json!(views.engine_source.label()));
    let (scheduler, engine) = (views.scheduler, views.engine);
    let stamps = [
        ("sent_ns", record.sent.map(Stamp::ns)),
        ("scheduler_received_ns", scheduler.map(|s| s.received_ns)),
        ("queued_ns", scheduler.map(|s| s.queued_ns)),
        ("scheduler_admit_ns", scheduler.map(|s| s.admit_ns)),
        ("engine_received_ns", engine.map(|e| e.received_ns)),
        ("engine_admit_ns", engine.map(|e| e.admit_ns)),
        ("engine_first_token_ns", engine.map(|e| e.first_token_ns)),
        ("scheduler_first_token_ns", scheduler.map(|s| s.first_token_ns)),
        ("first_token_ns", record.first_token().map(Stamp::ns)),
    ];
    for (name, ns) in stamps {
        put(name, ns.filter(|&ns| ns != 0).map_or(Value::Null, |ns| json!(ns)));
    }
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
