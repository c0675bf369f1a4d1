//! What requests waited for, over time: mean queue wait by cause of the requests whose first token came
//! in each stretch.

use std::collections::BTreeMap;

use super::{
    behind_picture,
    rows::Row,
    svg::{Svg, cause_colour, key},
};

const WIDTH: f64 = 960.0;
const HEIGHT: f64 = 250.0;
const LEFT: f64 = 60.0;
const STRETCHES: usize = 24;

pub fn section(rows: &[Row]) -> String {
    let origin = rows.iter().map(|r| r.start).fold(f64::INFINITY, f64::min);
    let end = rows.iter().map(|r| r.first_token() - origin).fold(1e-3, f64::max);
    let mut stretches = vec![(0_usize, BTreeMap::<&str, f64>::new()); STRETCHES];
    for row in rows {
        let place = ((row.first_token() - origin) / end * STRETCHES as f64) as usize;
        let (n, causes) = &mut stretches[place.min(STRETCHES - 1)];
        *n += 1;
        for (name, ms) in &row.causes {
            *causes.entry(name).or_default() += ms;
        }
    }
    for (n, causes) in &mut stretches {
        causes.values_mut().for_each(|ms| *ms /= *n as f64);
    }
    let most = stretches.iter().map(|s| s.1.values().sum::<f64>()).fold(1e-3, f64::max);
    let mut names: Vec<&str> = stretches.iter().flat_map(|s| s.1.keys().copied()).collect();
    names.sort_unstable();
    names.dedup();

    let (plot_w, plot_h) = (WIDTH - LEFT - 20.0, HEIGHT - 50.0);
    let mut svg = Svg::new(WIDTH, HEIGHT, "Mean queue wait by cause, over the time of the first token");
    svg.text(LEFT - 8.0, 14.0, "end", &format!("{most:.0} ms"));
    svg.line((LEFT, 10.0), (LEFT, 10.0 + plot_h), "#5c5c5c");
    for (i, (_, causes)) in stretches.iter().enumerate() {
        let width = plot_w / STRETCHES as f64;
        let mut y = 10.0 + plot_h;
        for name in &names {
            let ms = causes.get(name).copied().unwrap_or(0.0);
            let height = plot_h * ms / most;
            y -= height;
            let tip = format!("{name} {ms:.2} ms");
            svg.bar(LEFT + i as f64 * width, y, width * 0.92, height, cause_colour(name), &tip);
        }
    }
    svg.axis(LEFT, 10.0 + plot_h, plot_w, end);
    let mut head = vec!["first token within ms".to_owned(), "requests".to_owned()];
    head.extend(names.iter().map(|n| (*n).to_owned()));
    let mut table = vec![head];
    for (i, (n, causes)) in stretches.iter().enumerate() {
        let mut row = vec![format!("{:.0}", end * (i + 1) as f64 / STRETCHES as f64), n.to_string()];
        row.extend(names.iter().map(|name| causes.get(name).map_or("–".to_owned(), |ms| format!("{ms:.2}"))));
        table.push(row);
    }
    let legend = key(names.iter().map(|n| (*n, cause_colour(n))));
    format!("<h2>What requests waited for</h2>{}{legend}{}", svg.finish(), behind_picture(&table))
}
