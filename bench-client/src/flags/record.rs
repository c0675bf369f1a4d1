//! `bench-client record`

use std::{path::PathBuf, time::Duration};

use clap::Args;

use super::server::ServerFlags;
use crate::report::slo::duration_ns;

/// Records traffic that other clients send, as the scheduler's spans tell of it, for `whatif`. Makes no load itself.
#[derive(Args, Clone, Debug)]
pub struct RecordFlags {
    /// How long, as in 90s; by default until Ctrl-C. Requests are kept in memory until the end.
    #[arg(long = "for", value_name = "TIME", value_parser = duration)]
    pub lasting: Option<Duration>,
    /// Wait so long at most for the end of requests that are in flight then; another Ctrl-C ends the wait.
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = duration)]
    pub drain: Duration,
    /// Only requests of this run label.
    #[arg(long, default_value = "", value_name = "NAME", hide_default_value = true)]
    pub run_label: String,
    /// Write one JSON object per request, as `run` does; times before stamp 2 and after stamp 8 are not known.
    #[arg(long, value_name = "FILE")]
    pub jsonl_out: PathBuf,
    /// Write what the pair costs, as `run` does.
    #[arg(long, value_name = "FILE")]
    pub forwards_out: PathBuf,
    /// Write all results as JSON.
    #[arg(long, value_name = "FILE")]
    pub json_out: Option<PathBuf>,
    /// Print nothing but errors.
    #[arg(long, short)]
    pub quiet: bool,
    /// Where the services are; the admin listener tells the budget, where it can be reached.
    #[command(flatten)]
    pub server: ServerFlags,
}

fn duration(text: &str) -> Result<Duration, String> {
    let ns = duration_ns(text).and_then(|ns| u64::try_from(ns).ok());
    ns.map(Duration::from_nanos).ok_or_else(|| format!("{text:?} is no time; write 90s or 500ms"))
}
