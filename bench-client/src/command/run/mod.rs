//! `bench-client run`: makes the load, joins what three processes saw, reports.
//!
//! - [`workload`]: what the flags ask for: passes of requests
//! - [`passes`]: sends them: self-check, warm-up, measured runs
//! - [`pair`]: against scheduler-svc, with budget, clocks and spans
//! - [`http`]: against any OpenAI-compatible server
//! - [`budget`]: the limits of a run
//! - [`output`]: the page, the files and the exit code

mod budget;
mod http;
mod output;
mod pair;
mod passes;
mod workload;

use std::process::ExitCode;

use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::{flags::run::RunFlags, join::Joined, report::Results};

/// Runs the command; the exit code tells whether the run is good.
///
/// # Errors
/// When a server is not there, refuses the budget, or a file cannot be read or written.
pub async fn run(flags: RunFlags) -> anyhow::Result<ExitCode> {
    let stop = stop_on_ctrl_c();
    measure(&flags, &stop, |joined, results| {
        output::write(&flags, joined, results)?;
        Ok(output::verdict(&flags, joined, results))
    })
    .await
}

/// Makes the load that `flags` ask for, and hands what it brought to `then`.
///
/// # Errors
/// As [`run`], and those of `then`.
pub async fn measure<T>(
    flags: &RunFlags,
    stop: &CancellationToken,
    then: impl FnOnce(&[Joined<'_>], &Results) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    match &flags.http.openai {
        Some(base) => http::run(flags, base, stop, then).await,
        None => pair::run(flags, stop, then).await,
    }
}

/// Makes the load and writes the files that `flags` ask for; what came of it.
///
/// # Errors
/// As [`run`].
pub async fn results(flags: &RunFlags) -> anyhow::Result<Results> {
    measure(flags, &stop_on_ctrl_c(), |joined, results| {
        output::write(flags, joined, results)?;
        Ok(results.clone())
    })
    .await
}

/// The first Ctrl-C ends the load and reports what was measured; the second ends the process.
pub fn stop_on_ctrl_c() -> CancellationToken {
    let stop = CancellationToken::new();
    let stopped = stop.clone();
    tokio::spawn(async move {
        if tokio::signal::ctrl_c().await.is_ok() {
            stopped.cancel();
        }
        if tokio::signal::ctrl_c().await.is_ok() {
            std::process::exit(130);
        }
    });
    stop
}

/// A name that no other run has: its label and the random end of a UUIDv7.
fn unique_label(label: &str) -> String {
    format!("{label}-{}", Uuid::now_v7().simple().to_string().split_off(24))
}
