//! The same arrivals live, under the same budgets: what was predicted beside what is measured.

use std::path::Path;

use clap::Parser as _;
use firstlight_proto::v1;

use super::figures::{self, Figures};
use crate::{
    command::run,
    flags::{Cli, Command, run::RunFlags, server::ServerFlags},
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
    /// Deadline of each request instead of the recorded one, ms.
    pub timeout_ms: Option<u64>,
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

async fn run(live: &Live<'_>) -> anyhow::Result<Figures> {
    let results = run::results(&flags(live)?).await?;
    anyhow::ensure!(!results.run.interrupted, "interrupted");
    Ok(figures::of_results(&results))
}

/// A run as anyone would ask for it on the command line.
fn flags(live: &Live<'_>) -> anyhow::Result<RunFlags> {
    let words = [
        "bench-client",
        "run",
        "--quiet",
        "--no-self-check",
        "--no-stop-on-eos",
        "--no-prefix-cache",
        "--warmup-runs=0",
        "--run-label=whatif",
        "--dataset=recorded",
    ];
    let Command::Run(mut flags) = Cli::try_parse_from(words)?.command else {
        unreachable!("the second word is run");
    };
    flags.server = live.server.clone();
    flags.dataset.dataset_path = Some(live.recording.to_owned());
    flags.load.timeout_ms = live.timeout_ms;
    flags.output.slo = live.slo;
    Ok(*flags)
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
    fn a_live_run_reaches_the_services_as_whatif_was_told_to() {
        let words = [
            "bench-client whatif run.jsonl --forwards f.jsonl --verify --target a:1 --admin b:2 --engine c:3",
            "--tls-ca ca.pem --tls-cert cert.pem --tls-key key.pem --tls-name scheduler",
        ];
        let told = Cli::parse_from(words.iter().flat_map(|words| words.split(' ')));
        let Command::Whatif(told) = told.command else { panic!("another command") };
        let recording = Path::new("run.jsonl");
        let live = Live { server: &told.server, recording, timeout_ms: Some(500), slo: None };
        let run = flags(&live).unwrap();
        assert_eq!(run.server, told.server);
        assert_eq!(run.server.tls.tls_name.as_deref(), Some("scheduler"));
        assert_eq!((run.load.timeout_ms, run.dataset.dataset_path.as_deref()), (Some(500), Some(recording)));
    }

    #[test]
    fn a_figure_over_runs_is_their_mean_and_range() {
        let run = |ms: f64| Figures::from([("ttft_mean_ms".to_owned(), ms)]);
        let runs = [run(4.0), run(2.0), run(3.0)];
        assert_eq!(spread(&runs, "ttft_mean_ms"), Some(Spread { mean: 3.0, range: (2.0, 4.0) }));
        assert_eq!(spread(&runs, "itl_mean_ms"), None);
    }
}
