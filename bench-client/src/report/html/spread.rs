//! How TTFT and its largest parts are distributed: the share of requests at or below a time.

use super::{
    behind_picture,
    rows::Row,
    svg::{Svg, key},
};

const WIDTH: f64 = 960.0;
const HEIGHT: f64 = 260.0;
const LEFT: f64 = 60.0;
const QUANTILES: [f64; 7] = [0.05, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99];

pub fn section(rows: &[Row]) -> String {
    let sorted = |figure: &dyn Fn(&Row) -> f64| {
        let mut values: Vec<f64> = rows.iter().map(figure).collect();
        values.sort_by(f64::total_cmp);
        values
    };
    let curves = [
        ("TTFT", "#000000", "", sorted(&|r| r.ttft)),
        ("queue_wait", "#d55e00", "7 3", sorted(&|r| r.parts[3])),
        ("engine_wait", "#e69f00", "2 3", sorted(&|r| r.parts[5])),
        ("prefill", "#0072b2", "10 3 2 3", sorted(&|r| r.parts[6])),
    ];
    let most = curves.iter().filter_map(|c| c.3.last().copied()).fold(1e-3, f64::max);
    let (plot_w, plot_h) = (WIDTH - LEFT - 20.0, HEIGHT - 60.0);
    let mut svg = Svg::new(WIDTH, HEIGHT, "Share of requests at or below a time, for TTFT and its parts");
    for share in [0.0, 0.25, 0.5, 0.75, 1.0] {
        let y = 10.0 + plot_h * (1.0 - share);
        svg.line((LEFT, y), (LEFT + plot_w, y), "#d9d9d9");
        svg.text(LEFT - 8.0, y + 4.0, "end", &format!("{} %", 100.0 * share));
    }
    for (_, colour, dashes, values) in &curves {
        let n = values.len() as f64;
        let points = values.iter().enumerate();
        let point = |(i, v): (usize, &f64)| {
            (LEFT + plot_w * v.max(0.0) / most, 10.0 + plot_h * (1.0 - (i + 1) as f64 / n))
        };
        svg.path(points.map(point), colour, dashes);
    }
    svg.axis(LEFT, 10.0 + plot_h, plot_w, most);
    let mut head = vec!["ms".to_owned()];
    head.extend(QUANTILES.map(|q| format!("p{}", (q * 100.0) as u32)));
    let mut table = vec![head];
    for (name, _, _, values) in &curves {
        let at = |q: f64| values[((values.len() - 1) as f64 * q).round() as usize];
        let mut row = vec![(*name).to_owned()];
        row.extend(QUANTILES.map(|q| format!("{:.2}", at(q))));
        table.push(row);
    }
    let legend = key(curves.iter().map(|c| (c.0, c.1)));
    format!("<h2>Distributions</h2>{}{legend}{}", svg.finish(), behind_picture(&table))
}
