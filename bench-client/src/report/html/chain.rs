//! Where TTFT goes: a stacked bar of means over all requests, and one over the slowest.

use super::{
    behind_picture, ms,
    svg::{Svg, part_colour, parts_key},
};
use crate::{join::part_names, report::Results};

const WIDTH: f64 = 960.0;
const LEFT: f64 = 110.0;
const BAR: f64 = 34.0;

pub fn section(r: &Results) -> String {
    let all = |name: &str| r.segments.get(name).and_then(|s| s.share_ms);
    let slowest = |name: &str| r.slowest_1pct.segments.get(name).copied();
    let most = r.slowest_1pct.ttft_mean_ms.unwrap_or(0.0).max(r.ttft.mean_ms.unwrap_or(0.0)).max(1e-3);
    let mut svg = Svg::new(WIDTH, 150.0, "Mean TTFT by part, over all requests and over the slowest");
    let names = part_names();
    let slow_name = format!("slowest {}", r.slowest_1pct.n);
    let bars = [("all", names.map(all)), (slow_name.as_str(), names.map(slowest))];
    for (row, (title, values)) in bars.into_iter().enumerate() {
        let y = 10.0 + row as f64 * (BAR + 14.0);
        svg.text(LEFT - 10.0, y + BAR / 2.0 + 4.0, "end", title);
        let mut x = LEFT;
        for (i, (name, value)) in names.iter().zip(values).enumerate() {
            let value = value.unwrap_or(0.0);
            let width = (WIDTH - LEFT - 20.0) * value / most;
            svg.bar(x, y, width, BAR, part_colour(i), &format!("{name} {value:.2} ms"));
            x += width.max(0.0);
        }
    }
    svg.axis(LEFT, 108.0, WIDTH - LEFT - 20.0, most);
    let mut rows = vec![
        ["ms", "mean", "± bound", "slowest", "p50", "p95", "p99", "negative", "unresolved"]
            .map(str::to_owned)
            .to_vec(),
    ];
    for name in names {
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
    let dash = || vec!["–".to_owned(); 5];
    let rest = [
        ("unexplained", r.unexplained.mean_ms, r.slowest_1pct.unexplained_ms),
        ("TTFT", r.ttft.mean_ms, r.slowest_1pct.ttft_mean_ms),
    ];
    for (name, mean, slow) in rest {
        let mut row = vec![name.to_owned(), ms(mean), "–".to_owned(), ms(slow)];
        row.extend(dash());
        rows.push(row);
    }
    format!("<h2>Where TTFT goes</h2>{}{}{}", svg.finish(), parts_key(), behind_picture(&rows))
}
