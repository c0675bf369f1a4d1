//! One row per request: its parts from the intended send time to its first token, then its decode. Ticks
//! above are the starts of prefill forwards.

use super::{
    behind_picture,
    rows::Row,
    svg::{Svg, part_colour, parts_key},
};
use crate::join::{LOST, part_names};

const WIDTH: f64 = 960.0;
const LEFT: f64 = 10.0;
const TOP: f64 = 24.0;
/// More rows than this are thinned out evenly.
const MOST_ROWS: usize = 256;
/// The order of time: an attempt is lost before the admission that counted.
const IN_TIME: [usize; 10] = [0, 1, 2, LOST, 3, 4, 5, 6, 7, 8];

pub fn section(rows: &[Row]) -> String {
    let origin = rows.iter().map(|r| r.start).fold(f64::INFINITY, f64::min);
    let end = rows.iter().map(|r| r.start + r.latency.unwrap_or(r.ttft) - origin).fold(1e-3, f64::max);
    let mut shown: Vec<&Row> = rows.iter().step_by(rows.len().div_ceil(MOST_ROWS)).collect();
    shown.sort_by(|a, b| {
        (a.start, a.first_token())
            .partial_cmp(&(b.start, b.first_token()))
            .unwrap_or(std::cmp::Ordering::Equal)
    });
    let height = (420.0 / shown.len() as f64).clamp(1.5, 14.0);
    let scale = (WIDTH - 2.0 * LEFT) / end;
    let bottom = TOP + height * shown.len() as f64;
    let mut svg = Svg::new(WIDTH, bottom + 40.0, "Timeline: one row per request, coloured by part of TTFT");
    for at in prefill_starts(rows, origin) {
        svg.line((LEFT + at * scale, TOP - 10.0), (LEFT + at * scale, TOP - 3.0), "#1b1b1b");
    }
    for (i, row) in shown.iter().enumerate() {
        let y = TOP + i as f64 * height;
        let mut x = LEFT + (row.start - origin) * scale;
        for part in IN_TIME {
            let tip = format!("{}: {} {:.2} ms", row.id, part_names()[part], row.parts[part]);
            let width = row.parts[part].max(0.0) * scale;
            svg.bar(x, y, width, height * 0.9, part_colour(part), &tip);
            x += width;
        }
        if let Some(latency) = row.latency {
            let first = LEFT + (row.first_token() - origin) * scale;
            let decode = latency - row.ttft;
            let tip = format!("{}: decode {decode:.2} ms", row.id);
            svg.bar(first, y, decode * scale, height * 0.9, "#e8e8e8", &tip);
        }
    }
    svg.axis(LEFT, bottom + 4.0, WIDTH - 2.0 * LEFT, end);
    let thinned = if shown.len() < rows.len() {
        format!(" {} of {} requests are shown.", shown.len(), rows.len())
    } else {
        String::new()
    };
    let mut cells = vec![["request", "sent at ms", "TTFT ms", "latency ms"].map(str::to_owned).to_vec()];
    cells.extend(shown.iter().map(|r| {
        let latency = r.latency.map_or("–".to_owned(), |l| format!("{l:.2}"));
        vec![r.id.clone(), format!("{:.2}", r.start - origin), format!("{:.2}", r.ttft), latency]
    }));
    format!(
        "<h2>Timeline</h2><p>One row per request; grey is decode; ticks are starts of prefill forwards.{thinned}</p>{}{}{}",
        svg.finish(),
        parts_key(),
        behind_picture(&cells)
    )
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
