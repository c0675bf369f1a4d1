//! What requests waited for, over time: mean queue wait by cause of the requests whose first token came
//! in each stretch.

use std::collections::BTreeMap;

use super::{behind_picture, colour, plot::Plot, rows::Row};

const HEIGHT: f64 = 250.0;
const TOP: f64 = 12.0;
const STRETCHES: usize = 24;

/// The requests of one stretch of time, and the mean of their waits.
#[derive(Clone, Default)]
struct Stretch {
    n: usize,
    causes: BTreeMap<&'static str, f64>,
}

pub fn causes(rows: &[Row]) -> String {
    let origin = rows.iter().map(|r| r.start).fold(f64::INFINITY, f64::min);
    let end = rows.iter().map(|r| r.first_token() - origin).fold(1e-3, f64::max);
    let stretches = stretches(rows, origin, end);
    let most = stretches.iter().map(|s| s.causes.values().sum::<f64>()).fold(1e-3, f64::max);
    let mut names: Vec<&str> = stretches.iter().flat_map(|s| s.causes.keys().copied()).collect();
    names.sort_unstable();
    names.dedup();

    let mut plot = Plot::new(HEIGHT, "Mean queue wait by cause, over the time of the first token");
    plot.rules(TOP, most, "ms");
    let width = 1.0 / STRETCHES as f64;
    for (i, stretch) in stretches.iter().enumerate() {
        let (mut y, x) = (HEIGHT, i as f64 * width);
        for name in &names {
            let ms = stretch.causes.get(name).copied().unwrap_or(0.0);
            let height = (HEIGHT - TOP) * ms / most;
            y -= height;
            plot.bar((x, x + 0.92 * width), y, height, colour::cause(name), &format!("{name} {ms:.2} ms"));
        }
    }
    plot.axis(end, "ms to the first token");
    let mut head = vec!["first token within ms".to_owned(), "requests".to_owned()];
    head.extend(names.iter().map(|n| (*n).to_owned()));
    let mut table = vec![head];
    for (i, stretch) in stretches.iter().enumerate() {
        let mut row = vec![format!("{:.0}", end * (i + 1) as f64 / STRETCHES as f64), stretch.n.to_string()];
        let cell = |name: &&str| stretch.causes.get(name).map_or("–".to_owned(), |ms| format!("{ms:.2}"));
        row.extend(names.iter().map(cell));
        table.push(row);
    }
    let legend = colour::key(names.iter().map(|n| (*n, colour::cause(n))));
    format!(
        "<p>Mean wait until the prefill starts, of the requests whose first token came in each stretch.</p>{}{legend}{}",
        plot.finish(),
        behind_picture(&table)
    )
}

fn stretches(rows: &[Row], origin: f64, end: f64) -> Vec<Stretch> {
    let mut stretches = vec![Stretch::default(); STRETCHES];
    for row in rows {
        let place = ((row.first_token() - origin) / end * STRETCHES as f64) as usize;
        let stretch = &mut stretches[place.min(STRETCHES - 1)];
        stretch.n += 1;
        for (name, ms) in &row.causes {
            *stretch.causes.entry(name).or_default() += ms;
        }
    }
    for Stretch { n, causes } in &mut stretches {
        causes.values_mut().for_each(|ms| *ms /= *n as f64);
    }
    stretches
}
