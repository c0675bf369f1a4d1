//! `bench-client sweep`

use std::path::PathBuf;

use clap::Args;
use firstlight_proto::{clock::Drift, inject::loss::Share};

use super::{
    budget::BudgetFlags,
    dataset::DatasetFlags,
    load::LoadFlags,
    run::{AuditFlags, HttpFlags, OutputFlags, RunFlags},
    sampling::SamplingFlags,
    server::ServerFlags,
};
use crate::{
    report::slo::Slo,
    sweep::{Axis, Setting},
};

const EXAMPLES: &str = "Examples:
  bench-client sweep --vary request-rate=5,10,20,40 --num-requests 200 --slo ttft=500ms,itl=50ms
  bench-client sweep --vary prefill-max-batch-size=4,16,64 --vary request-rate=10,20,40 --num-requests 200
  bench-client sweep --vary max-active-requests=16,32,64 --unique-prompts --html-out sweep.html
  bench-client sweep --vary max-concurrency=1,4,16,64 --openai http://127.0.0.1:8000

What can be varied: request-rate, max-concurrency and every flag under Budget. Points are measured one after the other,
those of one budget by growing load. Each is kept in --out as soon as it is measured, and the same command goes on from
there.";

/// Measures a grid over limits of admission or over the load, and finds where goodput saturates.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub struct SweepFlags {
    /// A flag and the values it takes in turn: request-rate=5,10,20 (repeatable: every combination).
    #[arg(long, value_name = "FLAG=VALUE,…", required = true)]
    pub vary: Vec<Axis>,
    /// Keep measured points here, and go on from those it holds.
    #[arg(long, value_name = "FILE", default_value = "sweep.jsonl")]
    pub out: PathBuf,
    /// Forget the points of --out and start over.
    #[arg(long)]
    pub fresh: bool,
    /// Give a point up when more than this share of its requests missed the objectives or failed, %.
    #[arg(long, value_name = "PERCENT", default_value_t = 50.0)]
    pub give_up: f64,
    /// Count requests that meet objectives as goodput: ttft=500ms,itl=50ms,tpot=60ms,latency=5s
    #[arg(long, value_name = "OBJECTIVES")]
    pub slo: Option<Slo>,
    /// Write the table as CSV.
    #[arg(long, value_name = "FILE")]
    pub csv_out: Option<PathBuf>,
    /// Write the table and its pictures as one self-contained HTML file.
    #[arg(long, value_name = "FILE")]
    pub html_out: Option<PathBuf>,
    /// Print no table, and nothing while measuring.
    #[arg(long, short)]
    pub quiet: bool,
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
    /// Limits of admission that do not vary.
    #[command(flatten)]
    pub budget: BudgetFlags,
    /// Do not measure this client against a server of its own before each point.
    #[arg(long)]
    pub no_self_check: bool,
}

impl SweepFlags {
    /// The run that measures the point at `settings`, the `nth` of this sweep.
    ///
    /// # Errors
    /// Names the setting that cannot be applied.
    pub fn run(&self, settings: &[Setting], nth: usize) -> Result<RunFlags, String> {
        let (mut load, mut budget) = (self.load.clone(), self.budget.clone());
        for setting in settings {
            setting.apply(&mut load, &mut budget)?;
        }
        let passes = load.warmup_runs + load.repeat_runs as usize;
        Ok(RunFlags {
            server: self.server.clone(),
            http: self.http.clone(),
            dataset: self.dataset.clone(),
            sampling: self.sampling.clone(),
            load,
            budget,
            output: OutputFlags { quiet: self.quiet, ..OutputFlags::silent("sweep", self.slo) },
            audit: AuditFlags::none(),
            no_self_check: self.no_self_check,
            give_up_percent: Some(self.give_up),
            prompts_used: nth * passes,
            inject_delay: Vec::new(),
            clock_drift: Drift::default(),
            drop_spans: Share::default(),
            omit_timelines: Share::default(),
            no_telemetry: false,
            forget_cancelled: 0,
        })
    }

    /// All flags that do not vary, in words: points measured with others do not mix.
    pub fn identity(&self) -> String {
        format!(
            "{:?} {:?} {:?} {:?} {:?} {:?} slo {} give up {}",
            self.server.target,
            self.http,
            self.load,
            self.dataset,
            self.sampling,
            self.budget.change(),
            self.slo.map_or("none".to_owned(), |slo| slo.to_string()),
            self.give_up
        )
    }
}
