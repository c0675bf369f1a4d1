//! Where TTFT goes: a stacked bar of means over all requests, and one over the slowest.

use super::{behind_picture, colour, ms, plot::Plot};
use crate::{join::part_names, report::Results};

const BAR: f64 = 38.0;
const ROW: f64 = 74.0;
/// Share of the width from which a part carries its name.
const ROOM_FOR_A_NAME: f64 = 0.1;

pub fn chain(r: &Results) -> String {
    let all = |name: &str| r.segments.get(name).and_then(|s| s.share_ms);
    let slowest = |name: &str| r.slowest_1pct.segments.get(name).copied();
    let (mean, slow) = (r.ttft.mean_ms.unwrap_or(0.0), r.slowest_1pct.ttft_mean_ms.unwrap_or(0.0));
    let most = slow.max(mean).max(1e-3);
    let names = part_names();
    let bars = [
        (format!("all {} requests: {mean:.2} ms", r.ttft.n), names.map(all), r.unexplained.mean_ms),
        (
            format!("the slowest {}: {slow:.2} ms", r.slowest_1pct.n),
            names.map(slowest),
            r.slowest_1pct.unexplained_ms,
        ),
    ];
    let mut plot = Plot::new(2.0 * ROW + 10.0, "Mean TTFT by part, over all requests and over the slowest");
    for (row, (title, values, unexplained)) in bars.into_iter().enumerate() {
        let y = row as f64 * ROW + 24.0;
        plot.text((0.0, 1.0), y - 13.0, "#1b1b1b", &title);
        let mut x = 0.0;
        let parts = names.iter().enumerate().map(|(i, name)| (*name, colour::part(i))).zip(values);
        for ((name, fill), value) in parts.chain([(("unexplained", "#e8e8e8"), unexplained)]) {
            let value = value.unwrap_or(0.0).max(0.0);
            let share = value / most;
            plot.bar((x, x + share), y, BAR, fill, &format!("{name} {value:.2} ms"));
            plot.line((x + share, y), (x + share, y + BAR), "#ffffff");
            if share >= ROOM_FOR_A_NAME {
                plot.text((x + 0.006, x + share), y + BAR / 2.0, colour::text_on(fill), name);
            }
            x += share;
        }
    }
    plot.axis(most, "ms");
    format!("{}{}{}", plot.finish(), colour::parts_key(), behind_picture(&rows(r, &all, &slowest)))
}

fn rows(
    r: &Results,
    all: &dyn Fn(&str) -> Option<f64>,
    slowest: &dyn Fn(&str) -> Option<f64>,
) -> Vec<Vec<String>> {
    let head = ["ms", "mean", "± bound", "slowest", "p50", "p95", "p99", "negative", "unresolved"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    for name in part_names() {
        let s = r.segments.get(name).copied().unwrap_or_default();
        let t = s.times;
        rows.push(vec![
            name.to_owned(),
            ms(all(name)),
            s.bound_ms.map_or("–".to_owned(), |b| format!("{b:.3}")),
            ms(slowest(name)),
            ms(t.p50_ms),
            ms(t.p95_ms),
            ms(t.p99_ms),
            s.negative.to_string(),
            s.unresolved.to_string(),
        ]);
    }
    let rest = [
        ("unexplained", r.unexplained.mean_ms, r.slowest_1pct.unexplained_ms),
        ("TTFT", r.ttft.mean_ms, r.slowest_1pct.ttft_mean_ms),
    ];
    for (name, mean, slow) in rest {
        let mut row = vec![name.to_owned(), ms(mean), "–".to_owned(), ms(slow)];
        row.resize(head.len(), "–".to_owned());
        rows.push(row);
    }
    for (name, mean) in &r.queue_wait_by_cause {
        let slow = r.slowest_1pct.queue_wait_by_cause.get(name).copied();
        let mut row = vec![format!("wait for {name}"), ms(Some(*mean)), "–".to_owned(), ms(slow)];
        row.resize(head.len(), "–".to_owned());
        rows.push(row);
    }
    rows
}
