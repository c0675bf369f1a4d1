//! Public traces of LLM services: times and lengths, no text. Each has its own units and traps; rows
//! keep their order, also where several share one timestamp.

use anyhow::{Context as _, bail};
use serde::Deserialize;

use super::{Input, Row};

/// Tokens per block of Mooncake's `hash_ids`.
const MOONCAKE_BLOCK: usize = 512;

#[derive(Deserialize)]
struct Mooncake {
    /// ms from the start.
    timestamp: i64,
    input_length: usize,
    output_length: u32,
    hash_ids: Vec<u64>,
}

/// Mooncake JSONL: `hash_ids` become shared prefixes. Times are relative ms.
///
/// # Errors
/// Names the line that is not of that shape.
pub fn mooncake(text: &str) -> anyhow::Result<Vec<Row>> {
    let parse = |(i, line): (usize, &str)| {
        let m: Mooncake =
            serde_json::from_str(line).with_context(|| format!("line {} is no Mooncake row", i + 1))?;
        let input = Input::Blocks { tokens: m.input_length, ids: m.hash_ids, block: MOONCAKE_BLOCK };
        Ok(Row {
            at_ns: Some(m.timestamp * 1_000_000),
            output_tokens: Some(m.output_length),
            ..Row::new(input)
        })
    };
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    from_first(lines.map(parse).collect::<anyhow::Result<_>>()?)
}

/// Azure LLM trace CSV: `TIMESTAMP` is a date with 7 fractional digits and no zone.
///
/// # Errors
/// Names the line that is not of that shape.
pub fn azure(text: &str) -> anyhow::Result<Vec<Row>> {
    csv(text, ["TIMESTAMP", "ContextTokens", "GeneratedTokens"], |[at, input, output]| {
        Some((date_ns(at)?, input.parse().ok()?, output.parse().ok()?))
    })
}

/// BurstGPT CSV: `Timestamp` in s; columns moved between releases, so they are found by name. Rows
/// without tokens are failed requests and are left out.
///
/// # Errors
/// Names the line that is not of that shape.
pub fn burstgpt(text: &str) -> anyhow::Result<Vec<Row>> {
    csv(text, ["Timestamp", "Request tokens", "Response tokens"], |[at, input, output]| {
        let seconds: f64 = at.parse().ok()?;
        let count = |s: &str| s.parse::<f64>().ok().map(|x| x as u32);
        Some(((seconds * 1e9) as i64, count(input)?, count(output)?))
    })
}

fn csv(
    text: &str,
    columns: [&str; 3],
    parse: impl Fn([&str; 3]) -> Option<(i64, u32, u32)>,
) -> anyhow::Result<Vec<Row>> {
    let mut lines = text.lines();
    let header: Vec<&str> = lines.next().unwrap_or_default().split(',').map(str::trim).collect();
    let mut places = [0; 3];
    for (place, name) in places.iter_mut().zip(columns) {
        *place = header.iter().position(|h| *h == name).with_context(|| format!("no column {name:?}"))?;
    }
    let mut rows = Vec::new();
    for (i, line) in lines.enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let cells: Vec<&str> = line.split(',').map(str::trim).collect();
        let cell = |place: usize| cells.get(place).copied().unwrap_or_default();
        let Some((at_ns, input, output)) = parse(places.map(cell)) else {
            bail!("line {} does not read as {columns:?}: {line:?}", i + 2);
        };
        if input > 0 && output > 0 {
            let input = Input::Tokens(input as usize);
            rows.push(Row { at_ns: Some(at_ns), output_tokens: Some(output), ..Row::new(input) });
        }
    }
    from_first(rows)
}

/// Times from the first row, in order of time; ties keep their order.
fn from_first(mut rows: Vec<Row>) -> anyhow::Result<Vec<Row>> {
    rows.sort_by_key(|r| r.at_ns);
    let first = rows.first().and_then(|r| r.at_ns).unwrap_or(0);
    rows.iter_mut().for_each(|r| r.at_ns = r.at_ns.map(|ns| ns - first));
    Ok(rows)
}

/// ns of `2023-11-16 18:15:46.6805900`, from an origin of its own.
fn date_ns(s: &str) -> Option<i64> {
    let (date, time) = s.split_once(' ')?;
    let mut ymd = date.split('-').map(|x| x.parse::<i64>().ok());
    let (year, month, day) = (ymd.next()??, ymd.next()??, ymd.next()??);
    let (hms, fraction) = time.split_once('.').unwrap_or((time, ""));
    let mut parts = hms.split(':').map(|x| x.parse::<i64>().ok());
    let (h, m, sec) = (parts.next()??, parts.next()??, parts.next()??);
    let padded: String = fraction.chars().chain(std::iter::repeat('0')).take(9).collect();
    let seconds = days(year, month, day) * 86_400 + h * 3_600 + m * 60 + sec;
    Some(seconds * 1_000_000_000 + padded.parse::<i64>().ok()?)
}

/// Days since 1970-01-01 in the Gregorian calendar (Hinnant, "chrono-compatible low-level date algorithms").
fn days(year: i64, month: i64, day: i64) -> i64 {
    let y = if month <= 2 { year - 1 } else { year };
    let era = y.div_euclid(400);
    let of_era = y - era * 400;
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}
