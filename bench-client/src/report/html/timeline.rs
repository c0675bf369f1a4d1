//! One row per request: its parts from the intended send time to its first token, then its decode. Ticks
//! above are the starts of prefill forwards.

use super::{behind_picture, colour, plot::Plot, rows::Row};
use crate::join::{LOST, part_names};

const TOP: f64 = 16.0;
/// More rows than this are thinned out evenly.
const MOST_ROWS: usize = 256;
const DECODE: &str = "#e8e8e8";
/// The order of time: an attempt is lost before the admission that counted.
const IN_TIME: [usize; 10] = [0, 1, 2, LOST, 3, 4, 5, 6, 7, 8];

pub fn timeline(rows: &[Row]) -> String {
    let origin = rows.iter().map(|r| r.start).fold(f64::INFINITY, f64::min);
    let end = rows.iter().map(|r| r.start + r.latency.unwrap_or(r.ttft) - origin).fold(1e-3, f64::max);
    let mut shown: Vec<&Row> = rows.iter().step_by(rows.len().div_ceil(MOST_ROWS)).collect();
    shown.sort_by(|a, b| a.start.total_cmp(&b.start).then(a.first_token().total_cmp(&b.first_token())));
    let height = (460.0 / shown.len() as f64).clamp(2.0, 16.0);
    let gap = if height > 4.0 { 1.0 } else { 0.0 };
    let mut plot = Plot::new(
        TOP + height * shown.len() as f64 + 8.0,
        "Timeline: one row per request, coloured by part of TTFT",
    );
    for at in prefill_starts(rows, origin) {
        plot.line((at / end, 2.0), (at / end, TOP - 5.0), "#1b1b1b");
    }
    for (i, row) in shown.iter().enumerate() {
        let y = TOP + i as f64 * height;
        let mut x = (row.start - origin) / end;
        for part in IN_TIME {
            let tip = format!("{}: {} {:.2} ms", row.id, part_names()[part], row.parts[part]);
            let width = row.parts[part].max(0.0) / end;
            plot.bar((x, x + width), y, height - gap, colour::part(part), &tip);
            x += width;
        }
        if let Some(latency) = row.latency {
            let first = (row.first_token() - origin) / end;
            let decode = latency - row.ttft;
            let tip = format!("{}: decode {decode:.2} ms", row.id);
            plot.bar((first, first + decode / end), y, height - gap, DECODE, &tip);
        }
    }
    plot.axis(end, "ms");
    let thinned = if shown.len() < rows.len() {
        format!(" {} of {} requests are shown.", shown.len(), rows.len())
    } else {
        String::new()
    };
    let names = part_names();
    let entries = names.iter().enumerate().map(|(i, name)| (*name, colour::part(i)));
    format!(
        "<p>One row per request, first sent on top. Ticks above are starts of prefill forwards.{thinned}</p>{}{}{}",
        plot.finish(),
        colour::key(entries.chain([("decode", DECODE)])),
        behind_picture(&cells(&shown, origin))
    )
}

fn cells(shown: &[&Row], origin: f64) -> Vec<Vec<String>> {
    let head = ["request", "sent at ms", "TTFT ms", "latency ms"].map(str::to_owned);
    let names = part_names();
    let mut cells = vec![head.into_iter().chain(names.map(str::to_owned)).collect::<Vec<_>>()];
    cells.extend(shown.iter().map(|r| {
        let latency = r.latency.map_or("–".to_owned(), |l| format!("{l:.2}"));
        let times = [format!("{:.2}", r.start - origin), format!("{:.2}", r.ttft), latency];
        let parts = r.parts.iter().map(|ms| format!("{ms:.2}"));
        std::iter::once(r.id.clone()).chain(times).chain(parts).collect()
    }));
    cells
}

/// Distinct starts of prefill forwards, to a tenth of a ms.
fn prefill_starts(rows: &[Row], origin: f64) -> Vec<f64> {
    let before_prefill = |r: &Row| IN_TIME[..7].iter().map(|&i| r.parts[i]).sum::<f64>();
    let measured = rows.iter().filter(|r| r.parts[6] > 0.0);
    let mut starts: Vec<i64> =
        measured.map(|r| ((r.start - origin + before_prefill(r)) * 10.0).round() as i64).collect();
    starts.sort_unstable();
    starts.dedup();
    starts.into_iter().map(|tenths| tenths as f64 / 10.0).collect()
}
