//! `bench-client sweep`: measures the points of a grid, one run each.

use std::process::ExitCode;

use anyhow::Context as _;
use tokio_util::sync::CancellationToken;

use super::run::{measure, stop_on_ctrl_c};
use crate::{
    flags::sweep::SweepFlags,
    report::Results,
    sweep::{Grid, Ladder, Setting, html, log::Log, point::words, text::Sweep},
};

/// Runs the command. Fails when it was interrupted or a point could not be measured; what was measured is
/// kept and shown all the same.
///
/// # Errors
/// When the grid makes no sense, or the file of points cannot be used.
pub async fn sweep(flags: SweepFlags) -> anyhow::Result<ExitCode> {
    let grid = Grid::new(flags.vary.clone()).map_err(anyhow::Error::msg)?;
    let log = Log::open(&flags.out, flags.identity(), flags.fresh)?;
    let mut going = Going { flags: &flags, log, skipped: Vec::new(), failed: false, stop: stop_on_ctrl_c() };
    let ladders = grid.ladders();
    for ladder in &ladders {
        going.climb(ladder).await?;
    }
    going.show(&grid, &ladders)?;
    let bad = going.failed || going.stop.is_cancelled();
    Ok(if bad { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// A sweep under way.
struct Going<'a> {
    flags: &'a SweepFlags,
    log: Log,
    skipped: Vec<(Vec<Setting>, String)>,
    failed: bool,
    stop: CancellationToken,
}

impl Going<'_> {
    /// Measures the points of one budget until more load is hopeless.
    async fn climb(&mut self, ladder: &[Vec<Setting>]) -> anyhow::Result<()> {
        for (rung, settings) in ladder.iter().enumerate() {
            let below: Vec<_> = ladder[..rung].iter().filter_map(|s| self.log.get(s)).collect();
            if let Some(why) = Ladder(&below).hopeless() {
                self.skip(settings, why);
            } else if self.stop.is_cancelled() {
                self.skip(settings, "interrupted".to_owned());
            } else if self.log.get(settings).is_some() {
                self.say(&format!("{}: measured before, see {}", words(settings), self.flags.out.display()));
            } else {
                self.point(settings).await?;
            }
        }
        Ok(())
    }

    async fn point(&mut self, settings: &[Setting]) -> anyhow::Result<()> {
        let run = self.flags.run(settings, self.log.points().len()).map_err(anyhow::Error::msg)?;
        match measure(&run, &self.stop, |_, results| Ok(results.clone())).await {
            // Half a point is none: the next sweep measures it whole.
            Ok(results) if results.run.interrupted => self.skip(settings, "interrupted".to_owned()),
            Ok(results) => {
                self.say(&format!("{}: {}", words(settings), in_words(&results)));
                self.log.add(settings.to_vec(), results)?;
            }
            Err(error) => {
                self.failed = true;
                self.skip(settings, format!("{error:#}"));
            }
        }
        Ok(())
    }

    fn skip(&mut self, settings: &[Setting], why: String) {
        self.skipped.push((settings.to_vec(), why));
    }

    fn say(&self, line: &str) {
        if !self.flags.quiet {
            eprintln!("{line}");
        }
    }

    fn show(&self, grid: &Grid, ladders: &[Vec<Vec<Setting>>]) -> anyhow::Result<()> {
        let measured = |ladder: &Vec<Vec<Setting>>| ladder.iter().filter_map(|s| self.log.get(s)).collect();
        let ladders: Vec<Vec<_>> = ladders.iter().map(measured).collect();
        let sweep =
            Sweep { title: title(ladders.iter().flatten().next()), grid, ladders, skipped: &self.skipped };
        let write = |path: &std::path::Path, text: String| {
            std::fs::write(path, text).with_context(|| format!("writing {}", path.display()))
        };
        if let Some(path) = &self.flags.csv_out {
            write(path, sweep.csv())?;
        }
        if let Some(path) = &self.flags.html_out {
            write(path, html::page(&sweep))?;
        }
        if !self.flags.quiet {
            print!("{}", sweep.page());
        }
        Ok(())
    }
}

fn title(first: Option<&&crate::sweep::Point>) -> String {
    first.map_or("nothing was measured".to_owned(), |point| {
        let run = &point.results.run;
        format!("{} at {} · {}", run.model, run.target, run.load.rsplit(", ").next().unwrap_or_default())
    })
}

fn in_words(r: &Results) -> String {
    let ms = |x: Option<f64>| x.map_or("–".to_owned(), |x| format!("{x:.1}"));
    let goodput =
        r.goodput.as_ref().map_or(String::new(), |g| format!(", {:.0} % within the objectives", g.percent));
    let given_up = r.run.given_up.as_ref().map_or(String::new(), |why| format!(", {why}"));
    format!(
        "{} of {} completed{goodput}, TTFT p50 {} p99 {} ms{given_up}",
        r.requests.completed,
        r.requests.completed + r.requests.failed,
        ms(r.ttft.p50_ms),
        ms(r.ttft.p99_ms)
    )
}
