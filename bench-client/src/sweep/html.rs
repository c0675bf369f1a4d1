//! A sweep as one self-contained HTML file: goodput and TTFT over the load, one line per budget, or bars
//! where only the budget varies.

use super::{Ladder, Point, Saturation, text::Sweep};
use crate::report::html::{colour, document, escape, plot::Plot, section, table};

const HEIGHT: f64 = 280.0;
const TOP: f64 = 12.0;
const BAR: f64 = 24.0;
const ROW: f64 = 52.0;

/// The page.
pub fn page(sweep: &Sweep<'_>) -> String {
    let findings: String = sweep.findings().iter().map(|f| format!("<li>{}</li>", escape(f))).collect();
    let mut body =
        format!("<header><h1>Sweep</h1><p>{}</p></header><ul>{findings}</ul>", escape(&sweep.title));
    let curves = [
        Curve { title: "Goodput", unit: "requests/s", value: |p| Some(p.goodput()) },
        Curve { title: "TTFT p99", unit: "ms", value: |p| p.results.ttft.p99_ms },
    ];
    for curve in curves {
        body += &section(curve.title, &curve.picture(sweep));
    }
    let mut rows = vec![sweep.head().into_iter().chain(["remark".to_owned()]).collect::<Vec<_>>()];
    rows.extend(sweep.rows().into_iter().map(|(cells, remark)| cells.into_iter().chain([remark]).collect()));
    body += &section("All points", &table(&rows));
    document("Sweep", &body)
}

/// A figure of every point.
struct Curve {
    title: &'static str,
    unit: &'static str,
    value: fn(&Point) -> Option<f64>,
}

impl Curve {
    fn picture(&self, sweep: &Sweep<'_>) -> String {
        let loads = sweep.ladders.iter().flatten().any(|p| p.load().is_some());
        if loads { self.lines(sweep) } else { self.bars(sweep) }
    }

    /// Over the load; the saturation point is ringed.
    fn lines(&self, sweep: &Sweep<'_>) -> String {
        let place = |p: &Point| Some((p.load()?.number()?, (self.value)(p)?));
        let all = || sweep.ladders.iter().flatten().filter_map(|p| place(p));
        let most_x = all().map(|p| p.0).fold(1e-9, f64::max);
        let most_y = all().map(|p| p.1).fold(1e-9, f64::max) * 1.05;
        let at = |(x, y): (f64, f64)| (x / most_x, HEIGHT - (HEIGHT - TOP) * y / most_y);
        let flag = sweep.grid.flags().last().unwrap_or_default();
        let mut plot = Plot::new(HEIGHT, &format!("{} over {flag}", self.title));
        plot.rules(TOP, most_y, self.unit);
        let mut names = Vec::new();
        for (i, ladder) in sweep.ladders.iter().enumerate().filter(|(_, ladder)| !ladder.is_empty()) {
            let (colour, dashes) = colour::line(i);
            let points: Vec<_> = ladder.iter().filter_map(|p| place(p)).collect();
            plot.path(points.iter().map(|p| at(*p)), colour, dashes);
            let knee = match Ladder(ladder).saturation() {
                Some(Saturation::At { load, .. }) => load.number(),
                _ => None,
            };
            for p in &points {
                let tip = format!("{flag} {}: {:.2} {}", p.0, p.1, self.unit);
                plot.dot(at(*p), colour, Some(p.0) == knee, &tip);
            }
            names.push((ladder[0].budget_words(), colour));
        }
        plot.axis(most_x, flag);
        let named = names.iter().any(|(name, _)| !name.is_empty());
        let key =
            if named { colour::key(names.iter().map(|(n, c)| (n.as_str(), *c))) } else { String::new() };
        format!("{}{key}<p>A ring marks where goodput saturates.</p>", plot.finish())
    }

    /// One bar per budget.
    fn bars(&self, sweep: &Sweep<'_>) -> String {
        let points: Vec<(&Point, f64)> =
            sweep.ladders.iter().flatten().filter_map(|p| Some((*p, (self.value)(p)?))).collect();
        let most = points.iter().map(|p| p.1).fold(1e-9, f64::max);
        let mut plot = Plot::new(points.len() as f64 * ROW + 8.0, self.title);
        for (i, (point, value)) in points.iter().enumerate() {
            let y = i as f64 * ROW + 22.0;
            plot.text(
                (0.0, 1.0),
                y - 11.0,
                "#1b1b1b",
                &format!("{}: {value:.2} {}", point.budget_words(), self.unit),
            );
            plot.bar((0.0, value / most), y, BAR, colour::line(0).0, &format!("{value:.2} {}", self.unit));
        }
        plot.axis(most, self.unit);
        plot.finish()
    }
}
