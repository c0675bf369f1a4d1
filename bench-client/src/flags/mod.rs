//! The command line. Budget flags and load flags have the seed's names.
//!
//! - [`run`]: `bench-client run`
//! - [`diff`]: `bench-client diff`
//! - [`record`]: `bench-client record`
//! - [`load`]: how many requests, when, and what they ask
//! - [`dataset`]: recorded or made-up requests
//! - [`budget`]: limits of admission, leased for the run
//! - [`sweep`]: `bench-client sweep`
//! - [`sampling`]: how tokens are chosen
//! - [`server`]: where the services are
//! - [`whatif`]: `bench-client whatif`
//! - [`given`]: which of some flags were given

pub mod budget;
pub mod dataset;
pub mod diff;
pub mod given;
pub mod load;
pub mod record;
pub mod run;
pub mod sampling;
pub mod server;
pub mod sweep;
pub mod whatif;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

use sampling::SamplingFlags;
use server::ServerFlags;

/// Makes load, joins the spans of client, scheduler and engine, and prints where TTFT goes.
#[derive(Parser, Debug)]
#[command(version, about, after_help = EXAMPLES)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
    /// What to log on stderr, as a tracing filter.
    #[arg(long, global = true, default_value = "warn", value_name = "FILTER")]
    pub log: String,
}

const EXAMPLES: &str = "Examples:
  bench-client complete 'The capital of France is'
  bench-client run --num-requests 256 --unique-prompts --max-new-tokens 64 --no-stop-on-eos
  bench-client run --num-requests 256 --prefill-max-batch-size 16 --max-active-requests 64 --json-out run.json
  bench-client run --request-rate 20 --num-requests 500 --slo ttft=500ms,itl=50ms
  bench-client run --dataset mooncake --dataset-path trace.jsonl --time-scale 0.5 --max-input-len 2048
  bench-client run --openai http://127.0.0.1:8000 --num-requests 64 --max-concurrency 16
  bench-client sweep --vary request-rate=5,10,20,40 --num-requests 200 --slo ttft=500ms
  bench-client diff before.jsonl after.jsonl --fail-if 'ttft_p99>+5%'
  bench-client report run.json --jsonl run.jsonl -o report.html
  bench-client explain REQUEST_ID
  bench-client run --jsonl-out run.jsonl --forwards-out forwards.jsonl
  bench-client record --for 10s --jsonl-out live.jsonl --forwards-out forwards.jsonl
  bench-client whatif run.jsonl --forwards forwards.jsonl --set prefill_max_batch_size=64
  bench-client whatif run.jsonl --forwards forwards.jsonl --search --slo ttft=500ms --verify";

/// Subcommands.
#[derive(Subcommand, Debug)]
pub enum Command {
    /// Streams one completion to the terminal, then tells where its TTFT went.
    Complete(CompleteFlags),
    /// Makes load and prints where TTFT goes.
    Run(Box<run::RunFlags>),
    /// Measures a grid over limits of admission or over the load, and finds where goodput saturates.
    Sweep(Box<sweep::SweepFlags>),
    /// Tells how much TTFT, its parts and its causes moved between runs of one load.
    Diff(diff::DiffFlags),
    /// Makes one self-contained HTML file of a run.
    Report(ReportFlags),
    /// Tells why a recent request waited, and who held the limit.
    Explain(ExplainFlags),
    /// Records traffic that other clients send, for `whatif`.
    Record(record::RecordFlags),
    /// Replays recorded arrivals under another budget, in virtual time, and predicts what it would do.
    Whatif(Box<whatif::WhatIfFlags>),
}

/// `bench-client complete`
#[derive(Args, Clone, Debug)]
pub struct CompleteFlags {
    /// The prompt.
    #[arg(required_unless_present = "token_ids", conflicts_with = "token_ids")]
    pub prompt: Option<String>,
    /// The prompt as token ids, and print ids: --token-ids 504,3575,282
    #[arg(long, value_delimiter = ',', value_name = "ID,…")]
    pub token_ids: Option<Vec<u32>>,
    /// Most tokens to generate.
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..))]
    pub max_new_tokens: u32,
    /// How tokens are chosen.
    #[command(flatten)]
    pub sampling: SamplingFlags,
    /// Where the services are.
    #[command(flatten)]
    pub server: ServerFlags,
}

/// `bench-client report`
#[derive(Args, Clone, Debug)]
pub struct ReportFlags {
    /// What `run --json-out` wrote.
    pub json: PathBuf,
    /// What `run --jsonl-out` wrote, for the pictures of single requests.
    #[arg(long, value_name = "FILE")]
    pub jsonl: Option<PathBuf>,
    /// The file to write.
    #[arg(long, short, default_value = "report.html", value_name = "FILE")]
    pub out: PathBuf,
}

/// `bench-client explain`
#[derive(Args, Clone, Debug)]
pub struct ExplainFlags {
    /// Id of the request: `complete` prints it; it is also in `x-request-id`, in what `run --jsonl-out` writes, and in
    /// the scheduler's log if it failed.
    pub request_id: String,
    /// Where the services are.
    #[command(flatten)]
    pub server: ServerFlags,
}
