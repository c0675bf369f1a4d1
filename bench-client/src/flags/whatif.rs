//! `bench-client whatif`

use std::path::PathBuf;

use clap::Args;
use firstlight_proto::v1::Budget;

use super::{dataset::DatasetFlags, given::Given, load::LoadFlags, server::ServerFlags};
use crate::{report::slo::Slo, whatif::budgets};

/// Replays recorded arrivals under another budget, in virtual time.
#[derive(Args, Clone, Debug)]
pub struct WhatIfFlags {
    /// What `run` or `record` wrote with --jsonl-out; without it --dataset says what arrives.
    ///
    /// Its requests arrive as they did: of the load flags only --timeout-ms may stand beside it.
    #[arg(value_name = "RUN.jsonl", required_unless_present = "dataset", conflicts_with = "dataset")]
    pub recording: Option<PathBuf>,
    /// What `run` or `record` wrote with --forwards-out: costs are fitted from it. Several are taken together; the last
    /// one's engines and budget count.
    #[arg(long, value_name = "FILE", required = true)]
    pub forwards: Vec<PathBuf>,
    /// A budget to try: NAME=VALUE,… by the names of the admin RPC. Repeatable: one budget each.
    #[arg(long, value_name = "NAME=VALUE,…", value_parser = budgets::parse)]
    pub set: Vec<Budget>,
    /// Find the best budget for --slo.
    #[arg(long, requires = "slo")]
    pub search: bool,
    /// Objectives to count requests by, as in `run`.
    #[arg(long, value_name = "OBJECTIVES")]
    pub slo: Option<Slo>,
    /// So many engines, like those recorded.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub engines: Option<u32>,
    /// Engines so many times as fast.
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0)]
    pub speed: f64,
    /// Replays per budget, each with costs and noise as they might have been.
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..))]
    pub replays: u32,
    /// Run the recorded budget and the others live as well, and print predicted beside measured.
    #[arg(long, requires = "recording")]
    pub verify: bool,
    /// Live runs under each budget.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..),
          requires = "verify")]
    pub verify_runs: u32,
    /// Write all that was found as JSON.
    #[arg(long, value_name = "FILE")]
    pub json_out: Option<PathBuf>,
    /// Print nothing but errors.
    #[arg(long, short)]
    pub quiet: bool,
    /// When the requests of a dataset arrive, and their deadline.
    #[command(flatten)]
    pub load: Given<LoadFlags>,
    /// What arrives, instead of a recording.
    #[command(flatten)]
    pub dataset: DatasetFlags,
    /// Where the services are, for --verify.
    #[command(flatten)]
    pub server: ServerFlags,
}
