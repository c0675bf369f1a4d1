//! The same arrivals live, under the same budgets: what was predicted beside what is measured.

use std::path::Path;

use clap::Parser as _;
use firstlight_proto::v1;

use super::figures::{self, Figures};
use crate::{
    command::run,
    flags::{Cli, Command, server::ServerFlags},
    observe::lease::Lease,
    report::slo::Slo,
    target::firstlight::connect,
};

/// How to run live.
#[derive(Clone, Debug)]
pub struct Live<'a> {
    /// Where the services are.
    pub server: &'a ServerFlags,
    /// The recording to send again.
    pub recording: &'a Path,
    /// Objectives to count requests by.
    pub slo: Option<Slo>,
}

/// What `runs` live runs measured of a figure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    /// Mean over runs.
    pub mean: f64,
    /// Least and greatest.
    pub range: (f64, f64),
}

/// Runs the recording live once with `budget` leased.
///
/// # Errors
/// When the scheduler refuses the budget, or the run fails.
pub async fn measure(live: &Live<'_>, budget: &v1::Budget) -> anyhow::Result<Figures> {
    let lease = Lease::take(connect(&live.server.admin).await?, budget.clone(), "whatif").await?;
    let measured = run(live).await;
    lease.release().await;
    measured
}

/// A run as anyone would ask for it on the command line.
async fn run(live: &Live<'_>) -> anyhow::Result<Figures> {
    let recording = live.recording.display().to_string();
    let mut words =
        ["bench-client", "run", "--quiet", "--no-stop-on-eos", "--no-prefix-cache", "--warmup-runs", "0"]
            .map(str::to_owned)
            .to_vec();
    let mut flag = |name: &str, value: &str| words.extend([name.to_owned(), value.to_owned()]);
    flag("--dataset", "recorded");
    flag("--dataset-path", &recording);
    flag("--run-label", "whatif");
    flag("--target", &live.server.target);
    flag("--admin", &live.server.admin);
    for engine in &live.server.engine {
        flag("--engine", engine);
    }
    let Command::Run(mut flags) = Cli::try_parse_from(words)?.command else {
        unreachable!("the second word is run");
    };
    flags.output.slo = live.slo;
    flags.no_self_check = true;
    let results = run::results(&flags).await?;
    anyhow::ensure!(!results.run.interrupted, "interrupted");
    Ok(figures::of_results(&results))
}

/// A figure over runs; `None` where no run measured it.
pub fn spread(runs: &[Figures], name: &str) -> Option<Spread> {
    let values: Vec<f64> = runs.iter().filter_map(|figures| figures.get(name).copied()).collect();
    let least = values.iter().copied().min_by(f64::total_cmp)?;
    let greatest = values.iter().copied().max_by(f64::total_cmp)?;
    Some(Spread { mean: values.iter().sum::<f64>() / values.len() as f64, range: (least, greatest) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_over_runs_is_their_mean_and_range() {
        let run = |ms: f64| Figures::from([("ttft_mean_ms".to_owned(), ms)]);
        let runs = [run(4.0), run(2.0), run(3.0)];
        assert_eq!(spread(&runs, "ttft_mean_ms"), Some(Spread { mean: 3.0, range: (2.0, 4.0) }));
        assert_eq!(spread(&runs, "itl_mean_ms"), None);
    }
}
