//! How many requests, when, and what they ask.

use std::time::Duration;

use anyhow::bail;
use clap::{Args, Command, FromArgMatches as _, ValueEnum};

use crate::load::{Arrivals, hang_up::HangUps};

const DEFAULT_REQUESTS: usize = 256;

/// The load.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Load")]
pub struct LoadFlags {
    /// Requests per run: 256, or all of a recorded trace.
    #[arg(long, value_name = "N")]
    pub num_requests: Option<usize>,
    /// Send one request every so often instead of all at once.
    #[arg(long, value_name = "MS", conflicts_with = "request_rate")]
    pub submit_interval_ms: Option<f64>,
    /// Whether an interval counts from the intended time of the previous request or from its hand-over.
    #[arg(long, value_enum, default_value_t = Schedule::Absolute, requires = "submit_interval_ms")]
    pub submit_schedule: Schedule,
    /// Requests per second; gaps are random (see --burstiness) unless --arrival says otherwise.
    #[arg(long, value_name = "PER_SECOND")]
    pub request_rate: Option<f64>,
    /// How requests arrive at --request-rate.
    #[arg(long, value_enum, default_value_t = Arrival::Random, requires = "request_rate")]
    pub arrival: Arrival,
    /// Shape of the gamma distribution of gaps: 1 = Poisson, smaller = burstier.
    #[arg(long, default_value_t = 1.0, requires = "request_rate")]
    pub burstiness: f64,
    /// ramp, step: the rate at the end.
    #[arg(long, value_name = "PER_SECOND", requires = "request_rate")]
    pub to_rate: Option<f64>,
    /// ramp: how long the rate changes; step: when it changes.
    #[arg(long, value_name = "SECONDS", requires = "to_rate")]
    pub over: Option<f64>,
    /// Closed loop: most requests in flight; waiting for a slot is shown apart from TTFT.
    #[arg(long, value_name = "N")]
    pub max_concurrency: Option<usize>,
    /// The prompt.
    #[arg(long, default_value = "Hello")]
    pub prompt: String,
    /// The prompt as token ids, for a server without a tokenizer.
    #[arg(long, value_delimiter = ',', value_name = "ID,…", conflicts_with = "prompt")]
    pub token_ids: Option<Vec<u32>>,
    /// Write the prompt so many times in a row.
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub prompt_repeats: usize,
    /// Make prompts differ at the start, so that no prefix cache serves them.
    #[arg(long)]
    pub unique_prompts: bool,
    /// Tokens to generate per request.
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..), value_name = "TOKENS")]
    pub max_new_tokens: u32,
    /// Runs before the measured one.
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub warmup_runs: usize,
    /// Measured runs; their samples are pooled, and figures over runs get a confidence interval.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..), value_name = "N")]
    pub repeat_runs: u32,
    /// Seed of random arrivals and lengths.
    #[arg(long, default_value_t = 0, value_name = "SEED")]
    pub load_seed: u64,
    /// Neither read nor fill the prefix cache.
    #[arg(long)]
    pub no_prefix_cache: bool,
    /// Deadline of each request.
    #[arg(long, value_name = "MS")]
    pub timeout_ms: Option<u64>,
    /// Hang up on this share of requests, 0 to 1, each at a random moment within --hang-up-within-ms.
    #[arg(long, value_name = "SHARE", default_value_t = 0.0)]
    pub hang_up: f64,
    /// Latest moment to hang up, from when a request is sent.
    #[arg(long, value_name = "MS", default_value_t = 1000.0, requires = "hang_up")]
    pub hang_up_within_ms: f64,
    /// Metadata of each request, such as x-tenant=a (repeatable).
    #[arg(long, value_name = "KEY=VALUE")]
    pub metadata: Vec<String>,
    /// Connections to spread requests over, so that a limit on streams per connection hides no wait.
    #[arg(long, default_value_t = 8, value_name = "N")]
    pub channels: usize,
}

/// From when an interval counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Schedule {
    /// From the hand-over of the previous request: drifts, and hides the client's lag.
    Relative,
    /// From its intended time.
    Absolute,
}

/// How requests arrive at a rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Arrival {
    /// Equal gaps.
    Constant,
    /// Gaps of a gamma distribution; Poisson at burstiness 1.
    Random,
    /// The rate moves evenly to --to-rate within --over seconds.
    Ramp,
    /// The rate jumps to --to-rate after --over seconds.
    Step,
}

impl Default for LoadFlags {
    /// As without any flag.
    fn default() -> Self {
        let matches = Self::augment_args(Command::new("")).no_binary_name(true).get_matches_from([""; 0]);
        Self::from_arg_matches(&matches)
            .unwrap_or_else(|e| unreachable!("every load flag has a default: {e}"))
    }
}

impl LoadFlags {
    /// Requests per run; `recorded` is the number of rows of a trace.
    pub fn count(&self, recorded: Option<usize>) -> usize {
        let count = self.num_requests.or(recorded).unwrap_or(DEFAULT_REQUESTS);
        recorded.map_or(count, |rows| count.min(rows))
    }

    /// The intended send times.
    ///
    /// Recorded times are kept unless a rate or an interval was asked for.
    ///
    /// # Errors
    /// When a rate, a gap or a shape is not a positive number, or one that is needed is missing.
    pub fn arrivals(&self, recorded: Option<Vec<i64>>) -> anyhow::Result<Arrivals> {
        if let Some(ms) = self.submit_interval_ms {
            let gap = Duration::try_from_secs_f64(ms / 1e3)
                .map_err(|e| anyhow::anyhow!("--submit-interval-ms {ms}: {e}"))?;
            return Ok(match (gap.is_zero(), self.submit_schedule) {
                (true, _) => Arrivals::AtOnce,
                (_, Schedule::Relative) => Arrivals::AfterPrevious(gap),
                (_, Schedule::Absolute) => Arrivals::Every(gap),
            });
        }
        let Some(rate) = self.request_rate else {
            return Ok(recorded.map_or(Arrivals::AtOnce, Arrivals::Trace));
        };
        let rate = positive("--request-rate", rate)?;
        let change = || {
            let (Some(to), Some(over)) = (self.to_rate, self.over) else {
                bail!(
                    "--arrival ramp and step need --to-rate and --over, for example --to-rate 20 --over 30"
                );
            };
            Ok((positive("--to-rate", to)?, positive("--over", over)?))
        };
        Ok(match self.arrival {
            Arrival::Constant => Arrivals::Every(Duration::from_secs_f64(1.0 / rate)),
            Arrival::Random => {
                Arrivals::Random { rate, burstiness: positive("--burstiness", self.burstiness)? }
            }
            Arrival::Ramp => change().map(|(to, over)| Arrivals::Ramp { from: rate, to, over })?,
            Arrival::Step => change().map(|(to, at)| Arrivals::Step { from: rate, to, at })?,
        })
    }

    /// Who hangs up when; `None` when nobody does.
    ///
    /// # Errors
    /// When the share is not within 0 to 1, or the time is none.
    pub fn hang_ups(&self) -> anyhow::Result<Option<HangUps>> {
        anyhow::ensure!(
            (0.0..=1.0).contains(&self.hang_up),
            "--hang-up {} is not within 0 to 1",
            self.hang_up
        );
        let within = Duration::try_from_secs_f64(self.hang_up_within_ms / 1e3)
            .map_err(|e| anyhow::anyhow!("--hang-up-within-ms {}: {e}", self.hang_up_within_ms))?;
        Ok((self.hang_up > 0.0).then_some(HangUps { share: self.hang_up, within, seed: self.load_seed }))
    }

    /// The load in words, for the header.
    pub fn words(&self, arrivals: &Arrivals, n: usize) -> String {
        let when = match (self.submit_interval_ms, self.request_rate) {
            (Some(ms), _) if ms > 0.0 => format!("{n} requests, one every {ms} ms"),
            (_, Some(rate)) => match self.arrival {
                Arrival::Constant => format!("{n} requests at {rate}/s, evenly"),
                Arrival::Random if self.burstiness == 1.0 => format!("{n} requests at {rate}/s, Poisson"),
                Arrival::Random => format!("{n} requests at {rate}/s, burstiness {}", self.burstiness),
                Arrival::Ramp => {
                    format!("{n} requests, {rate}/s ramping to {}/s", self.to_rate.unwrap_or(rate))
                }
                Arrival::Step => format!("{n} requests, {rate}/s then {}/s", self.to_rate.unwrap_or(rate)),
            },
            _ if matches!(arrivals, Arrivals::Trace(_)) => format!("{n} requests at recorded times"),
            _ => format!("{n} requests at once"),
        };
        let cap = self.max_concurrency.map(|c| format!(", at most {c} in flight")).unwrap_or_default();
        format!("{when}{cap}, {} new tokens", self.max_new_tokens)
    }
}

fn positive(flag: &str, value: f64) -> anyhow::Result<f64> {
    if value.is_finite() && value > 0.0 {
        Ok(value)
    } else {
        bail!("{flag} {value} must be a positive number")
    }
}
