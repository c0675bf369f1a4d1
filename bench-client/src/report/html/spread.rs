//! How TTFT and its largest parts are distributed: the share of requests at or below a time.

use super::{behind_picture, colour, plot::Plot, rows::Row};

const HEIGHT: f64 = 260.0;
const TOP: f64 = 12.0;
const QUANTILES: [f64; 7] = [0.05, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99];

/// A figure of each request, as it is drawn.
struct Curve {
    name: &'static str,
    colour: &'static str,
    dashes: &'static str,
    sorted: Vec<f64>,
}

pub fn spread(rows: &[Row]) -> String {
    let curve = |name, colour, dashes, figure: &dyn Fn(&Row) -> f64| {
        let mut sorted: Vec<f64> = rows.iter().map(figure).collect();
        sorted.sort_by(f64::total_cmp);
        Curve { name, colour, dashes, sorted }
    };
    let curves = [
        curve("TTFT", "#000000", "", &|r| r.ttft),
        curve("queue_wait", colour::part(3), "7 3", &|r| r.parts[3]),
        curve("engine_wait", colour::part(5), "2 3", &|r| r.parts[5]),
        curve("prefill", colour::part(6), "10 3 2 3", &|r| r.parts[6]),
    ];
    let most = curves.iter().filter_map(|c| c.sorted.last().copied()).fold(1e-3, f64::max);
    let mut plot = Plot::new(HEIGHT, "Share of requests at or below a time, for TTFT and its parts");
    plot.rules(TOP, 100.0, "% of requests");
    for Curve { colour, dashes, sorted, .. } in &curves {
        let n = sorted.len() as f64;
        let place = |(i, v): (usize, &f64)| (v.max(0.0) / most, HEIGHT - (HEIGHT - TOP) * (i + 1) as f64 / n);
        plot.path(sorted.iter().enumerate().map(place), colour, dashes);
    }
    plot.axis(most, "ms");
    let mut head = vec!["ms".to_owned()];
    head.extend(QUANTILES.map(|q| format!("p{}", (q * 100.0).round())));
    let mut table = vec![head];
    for Curve { name, sorted, .. } in &curves {
        let at = |q: f64| sorted[((sorted.len() - 1) as f64 * q).round() as usize];
        let mut row = vec![(*name).to_owned()];
        row.extend(QUANTILES.map(|q| format!("{:.2}", at(q))));
        table.push(row);
    }
    let legend = colour::key(curves.iter().map(|c| (c.name, c.colour)));
    format!("{}{legend}{}", plot.finish(), behind_picture(&table))
}
