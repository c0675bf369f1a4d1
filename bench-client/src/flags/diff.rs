//! `bench-client diff`

use std::path::PathBuf;

use clap::Args;

use crate::diff::Gate;

const EXAMPLES: &str = "Examples:
  bench-client run --repeat-runs 5 --request-rate 20 --num-requests 500 --jsonl-out before.jsonl
  bench-client run --repeat-runs 5 --request-rate 20 --num-requests 500 --prefill-max-batch-size 4 --jsonl-out after.jsonl
  bench-client diff before.jsonl after.jsonl
  bench-client diff monday/ tuesday/ --fail-if 'ttft_p99>+5%' --fail-if 'prefill_mean>+2ms'

Exit codes: 0 when no --fail-if is exceeded, 1 when one is, 2 when the runs cannot be read or compared.
A limit is exceeded when the whole 95 % interval of the movement lies beyond it; an interval on both sides of it is
called undecided, and more runs tell.";

/// Compares runs of one load request by request. A and B are what `run --jsonl-out` wrote.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub struct DiffFlags {
    /// Before: a file, several with commas between, or a folder of .jsonl files.
    #[arg(value_name = "A", num_args = 1, value_delimiter = ',', required = true)]
    pub a: Vec<PathBuf>,
    /// After: the same load with the same seed, in as many runs.
    #[arg(value_name = "B", num_args = 1, value_delimiter = ',', required = true)]
    pub b: Vec<PathBuf>,
    /// Exit with 1 when a figure moved further: FIGURE_STATISTIC>+LIMIT, where the figure is ttft, tpot, latency,
    /// queue_wait_total, a part of TTFT or a cause, the statistic mean, p50, p95 or p99, the limit in % or ms
    /// (repeatable).
    #[arg(long, value_name = "LIMIT")]
    pub fail_if: Vec<Gate>,
    /// Seed of the resampling: the same seed gives the same intervals.
    #[arg(long, default_value_t = 0)]
    pub seed: u64,
    /// Write what was compared as JSON.
    #[arg(long, value_name = "FILE")]
    pub json_out: Option<PathBuf>,
    /// Print the JSON instead of the page.
    #[arg(long)]
    pub json: bool,
    /// Print nothing but errors.
    #[arg(long, short)]
    pub quiet: bool,
}
