//! The table of a sweep, for people and as CSV.

use std::fmt::Write as _;

use super::{Grid, Ladder, Point, Saturation, axis::Setting, point::words};

/// What is known of a sweep.
#[derive(Clone, Debug)]
pub struct Sweep<'a> {
    /// The load and the server, in words.
    pub title: String,
    /// The grid.
    pub grid: &'a Grid,
    /// What was measured, by budget.
    pub ladders: Vec<Vec<&'a Point>>,
    /// What was not measured, and why.
    pub skipped: &'a [(Vec<Setting>, String)],
}

const FIGURES: [&str; 10] = [
    "completed",
    "failed",
    "goodput_per_s",
    "goodput_percent",
    "tokens_per_s",
    "ttft_mean_ms",
    "ttft_p50_ms",
    "ttft_p99_ms",
    "itl_p99_ms",
    "queue_wait_p99_ms",
];

/// The figures of a point, in the order of the table's head; `None` = not measured.
pub fn figures(p: &Point) -> [Option<f64>; 10] {
    let r = &p.results;
    let all = r.requests.completed + r.requests.failed;
    let percent = match &r.goodput {
        Some(g) => Some(g.percent),
        None => (all > 0).then(|| 100.0 * r.requests.completed as f64 / all as f64),
    };
    [
        Some(r.requests.completed as f64),
        Some(r.requests.failed as f64),
        Some(p.goodput()),
        percent,
        r.throughput.output_tokens_per_s,
        r.ttft.mean_ms,
        r.ttft.p50_ms,
        r.ttft.p99_ms,
        r.itl.p99_ms,
        r.queue_wait_total.p99_ms,
    ]
}

impl Sweep<'_> {
    /// The head of the table: flags that vary, then figures.
    pub fn head(&self) -> Vec<String> {
        self.grid.flags().map(str::to_owned).chain(FIGURES.map(str::to_owned)).collect()
    }

    /// One row of cells per point, with what is to be said of it.
    pub fn rows(&self) -> Vec<(Vec<String>, String)> {
        let cell = |(i, value): (usize, Option<f64>)| match (i, value) {
            (_, None) => "–".to_owned(),
            (0 | 1, Some(count)) => format!("{count:.0}"),
            (_, Some(value)) => format!("{value:.2}"),
        };
        let row = |p: &&Point| {
            let settings = p.settings.iter().map(|s| s.value.clone());
            let cells = settings.chain(figures(p).into_iter().enumerate().map(cell)).collect();
            let remarks = [
                p.results.run.given_up.clone(),
                (p.results.validity.verdict == "INVALID").then(|| "INVALID".to_owned()),
            ];
            (cells, remarks.into_iter().flatten().collect::<Vec<_>>().join("; "))
        };
        self.ladders.iter().flatten().map(row).collect()
    }

    /// What the points say together, one sentence each.
    pub fn findings(&self) -> Vec<String> {
        let mut out = Vec::new();
        for ladder in self.ladders.iter().filter(|ladder| !ladder.is_empty()) {
            let budget = ladder[0].budget_words();
            let budget = if budget.is_empty() { budget } else { format!("{budget}: ") };
            match Ladder(ladder).saturation() {
                Some(Saturation::At { load, goodput }) => {
                    out.push(format!("{budget}saturates at {load}, goodput {goodput:.2} requests/s"));
                }
                Some(Saturation::NotReached { load, goodput }) => out.push(format!(
                    "{budget}not saturated: goodput {goodput:.2} requests/s still grows at {load}"
                )),
                None => {}
            }
        }
        if let Some(best) = self.best().filter(|_| self.ladders.len() > 1) {
            out.push(format!(
                "best goodput: {:.2} requests/s at {} (TTFT p99 {})",
                best.goodput(),
                words(&best.settings),
                best.results.ttft.p99_ms.map_or("–".to_owned(), |ms| format!("{ms:.2} ms"))
            ));
        }
        out.extend(
            self.skipped.iter().map(|(settings, why)| format!("not measured: {}: {why}", words(settings))),
        );
        out
    }

    /// The point of most goodput; of two within 1 %, the one with the lower TTFT p99.
    fn best(&self) -> Option<&Point> {
        let points = || self.ladders.iter().flatten().copied();
        let most = points().map(Point::goodput).fold(0.0, f64::max);
        let p99 = |p: &Point| p.results.ttft.p99_ms.unwrap_or(f64::INFINITY);
        points().filter(|p| p.goodput() >= 0.99 * most).min_by(|a, b| p99(a).total_cmp(&p99(b)))
    }

    /// The page a person reads.
    pub fn page(&self) -> String {
        let (head, rows) = (self.head(), self.rows());
        let width = |i: usize| {
            let cells = rows.iter().map(|(cells, _)| cells[i].chars().count());
            cells.chain([head[i].len()]).max().unwrap_or(0)
        };
        let line = |cells: &[String], remark: &str| {
            let cells = cells.iter().enumerate().map(|(i, c)| format!("{c:>w$}", w = width(i)));
            let line = format!("{}  {remark}", cells.collect::<Vec<_>>().join("  "));
            format!("{}\n", line.trim_end())
        };
        let mut out = format!("{}\n\n{}", self.title, line(&head, ""));
        for (cells, remark) in &rows {
            out += &line(cells, remark);
        }
        out.push('\n');
        for finding in self.findings() {
            let _ = writeln!(out, "{finding}");
        }
        out
    }

    /// The table as CSV, remarks in the last column.
    pub fn csv(&self) -> String {
        let line = |cells: &[String], last: &str| format!("{},{last}\n", cells.join(","));
        let mut out = line(&self.head(), "remark");
        for (cells, remark) in self.rows() {
            let cells: Vec<String> =
                cells.into_iter().map(|c| if c == "–" { String::new() } else { c }).collect();
            out += &line(&cells, &format!("\"{}\"", remark.replace('"', "\"\"")));
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sweep_of<'a>(grid: &'a Grid, points: &'a [Point]) -> Sweep<'a> {
        let ladders = points.chunks(2).map(|c| c.iter().collect()).collect();
        Sweep { title: "t".into(), grid, ladders, skipped: &[] }
    }

    fn point(active: u32, rate: u32, goodput: f64, p99: f64) -> Point {
        let setting = |flag: &str, value: u32| Setting { flag: flag.into(), value: value.to_string() };
        let mut results = crate::report::Results::default();
        results.throughput.requests_per_s = Some(goodput);
        results.ttft.p99_ms = Some(p99);
        let settings = vec![setting("max-active-requests", active), setting("request-rate", rate)];
        Point { sweep: String::new(), settings, results }
    }

    #[test]
    fn the_best_budget_is_named_and_every_ladder_has_its_end() {
        let axes = ["max-active-requests=8,16", "request-rate=5,10"];
        let grid = Grid::new(axes.iter().map(|a| a.parse().unwrap()).collect()).unwrap();
        let points = [
            point(8, 5, 5.0, 9.0),
            point(8, 10, 4.0, 900.0),
            point(16, 5, 5.0, 8.0),
            point(16, 10, 9.98, 50.0),
        ];
        let sweep = sweep_of(&grid, &points);
        let findings = sweep.findings().join("\n");
        for said in [
            "max-active-requests 8: saturates at request-rate 5",
            "max-active-requests 16: not saturated: goodput 9.98",
            "best goodput: 9.98 requests/s at max-active-requests 16, request-rate 10",
        ] {
            assert!(findings.contains(said), "{findings}");
        }
        let csv = sweep.csv();
        assert!(csv.starts_with("max-active-requests,request-rate,completed,failed,goodput_per_s"));
        assert!(csv.contains("16,10,0,0,9.98,,,,,50.00,,,\"\""), "{csv}");
        assert_eq!(sweep.page().lines().filter(|l| l.contains("9.98")).count(), 3);
    }
}
