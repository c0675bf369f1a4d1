//! `bench-client run`

use std::path::PathBuf;

use clap::Args;
use firstlight_proto::{
    clock::Drift,
    inject::{Injection, loss::Share},
};

use crate::{audit::watch::Listeners, report::slo::Slo, target::openai::Api};

use super::{
    budget::BudgetFlags, dataset::DatasetFlags, load::LoadFlags, sampling::SamplingFlags, server::ServerFlags,
};

/// Makes load and prints where TTFT goes.
#[derive(Args, Clone, Debug)]
pub struct RunFlags {
    /// Where the services are.
    #[command(flatten)]
    pub server: ServerFlags,
    /// Another kind of server.
    #[command(flatten)]
    pub http: HttpFlags,
    /// The load.
    #[command(flatten)]
    pub load: LoadFlags,
    /// Recorded or made-up requests.
    #[command(flatten)]
    pub dataset: DatasetFlags,
    /// How tokens are chosen.
    #[command(flatten)]
    pub sampling: SamplingFlags,
    /// Limits of admission.
    #[command(flatten)]
    pub budget: BudgetFlags,
    /// What to write, and what counts as failure.
    #[command(flatten)]
    pub output: OutputFlags,
    /// Balances with the services' own metrics.
    #[command(flatten)]
    pub audit: AuditFlags,
    /// Do not measure this client against a server of its own before the run.
    #[arg(long)]
    pub no_self_check: bool,
    /// Give the run up when more than this share of its requests missed the objectives or failed, %.
    #[arg(skip)]
    pub give_up_percent: Option<f64>,
    /// Passes of prompts that were asked before and must not be asked again.
    #[arg(skip)]
    pub prompts_used: usize,
    /// Delay a hand-over of this client by a known time, to test the breakdown.
    #[arg(long, value_name = "SEGMENT=MS", hide = true)]
    pub inject_delay: Vec<Injection>,
    /// Let this client's clock run fast by so many ppm, to test the breakdown.
    #[arg(long, value_name = "PPM", hide = true, allow_hyphen_values = true, default_value = "0")]
    pub clock_drift: Drift,
    /// Forget the spans of this share of requests, 0 to 1, to test the breakdown.
    #[arg(long, value_name = "SHARE", hide = true, default_value = "0")]
    pub drop_spans: Share,
    /// Ask the scheduler to withhold the timelines of this share of requests, to test the breakdown.
    #[arg(long, value_name = "SHARE", hide = true, default_value = "0")]
    pub omit_timelines: Share,
    /// Neither watch spans nor ask for timelines, to measure what they cost the services.
    #[arg(long, hide = true)]
    pub no_telemetry: bool,
    /// Forget so many requests that this client hung up on, to test the audit.
    #[arg(long, value_name = "N", hide = true, default_value_t = 0)]
    pub forget_cancelled: usize,
}

/// Servers that speak OpenAI's HTTP API.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Server")]
pub struct HttpFlags {
    /// Load this OpenAI-compatible server instead: http://HOST:PORT or https://HOST
    #[arg(long, value_name = "URL")]
    pub openai: Option<String>,
    /// Which of its two APIs.
    #[arg(long, value_enum, default_value_t = Api::Completions, requires = "openai")]
    pub openai_api: Api,
    /// Model to ask for; by default the one that is served.
    #[arg(long, value_name = "NAME")]
    pub model: Option<String>,
}

/// The conservation audit.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Audit")]
pub struct AuditFlags {
    /// Fail unless requests, tokens, segment sums and Little's law agree with the services' own metrics;
    /// the load must be their only traffic.
    #[arg(long)]
    pub audit: bool,
    /// The scheduler's metrics listener.
    #[arg(long, default_value = "127.0.0.1:9070", value_name = "HOST:PORT")]
    pub scheduler_metrics: String,
    /// Every engine's metrics listener.
    #[arg(long, default_value = "127.0.0.1:9071", value_delimiter = ',', value_name = "HOST:PORT,…")]
    pub engine_metrics: Vec<String>,
}

impl AuditFlags {
    /// Where to scrape; `None` when no audit was asked for.
    pub fn listeners(&self) -> Option<Listeners> {
        let (scheduler, engines) = (self.scheduler_metrics.clone(), self.engine_metrics.clone());
        self.audit.then_some(Listeners { scheduler, engines })
    }
}

impl AuditFlags {
    /// No audit.
    pub fn none() -> Self {
        Self { audit: false, scheduler_metrics: String::new(), engine_metrics: Vec::new() }
    }
}

impl OutputFlags {
    /// No output of its own, of a run called `label` that counts goodput by `slo`.
    pub fn silent(label: &str, slo: Option<Slo>) -> Self {
        Self {
            run_label: label.to_owned(),
            json_out: None,
            forwards_out: None,
            jsonl_out: None,
            csv_out: None,
            html_out: None,
            slo,
            no_definitions: true,
            quiet: true,
            json: false,
            allow_failures: true,
            require_closed: false,
        }
    }
}

/// Output.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Output")]
pub struct OutputFlags {
    /// Name of the run, in the header and in request ids.
    #[arg(long, default_value = "bench", value_name = "NAME")]
    pub run_label: String,
    /// Write all results as JSON.
    #[arg(long, value_name = "FILE")]
    pub json_out: Option<PathBuf>,
    /// Write one JSON object per request.
    #[arg(long, value_name = "FILE")]
    pub jsonl_out: Option<PathBuf>,
    /// Write what the pair costs, one JSON object per forward of its engines, for `whatif`.
    #[arg(long, value_name = "FILE")]
    pub forwards_out: Option<PathBuf>,
    /// Write one CSV line per request.
    #[arg(long, value_name = "FILE")]
    pub csv_out: Option<PathBuf>,
    /// Write one self-contained HTML file with pictures.
    #[arg(long, value_name = "FILE")]
    pub html_out: Option<PathBuf>,
    /// Count requests that meet objectives: ttft=500ms,itl=50ms,tpot=60ms,latency=5s
    #[arg(long, value_name = "OBJECTIVES")]
    pub slo: Option<Slo>,
    /// Do not print what the figures mean below them.
    #[arg(long)]
    pub no_definitions: bool,
    /// Print nothing but errors.
    #[arg(long, short)]
    pub quiet: bool,
    /// Print the JSON instead of the page.
    #[arg(long)]
    pub json: bool,
    /// Exit 0 although requests failed.
    #[arg(long)]
    pub allow_failures: bool,
    /// Fail when a chain does not close: a stamp missing, or more than 0.1 % of TTFT unexplained.
    #[arg(long)]
    pub require_closed: bool,
}
