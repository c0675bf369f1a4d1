//! How tokens are chosen and when generation ends.

use clap::Args;
use firstlight_proto::v1::{Sampling, Stop};

/// Sampling and stops. Greedy unless told otherwise.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Sampling")]
pub struct SamplingFlags {
    /// 0 = greedy.
    #[arg(long, default_value_t = 0.0)]
    pub temperature: f32,
    /// Keep the k most probable tokens; 0 = all.
    #[arg(long, default_value_t = 0)]
    pub top_k: u32,
    /// Keep the smallest set whose probability reaches this.
    #[arg(long, default_value_t = 1.0)]
    pub top_p: f32,
    /// Drop tokens less probable than this × the most probable one.
    #[arg(long, default_value_t = 0.0)]
    pub min_p: f32,
    /// Sample at temperature 1 when --temperature is not given.
    #[arg(long)]
    pub do_sample: bool,
    /// Seed of the noise; without one the scheduler draws it.
    #[arg(long)]
    pub seed: Option<u64>,
    /// Go on past the model's end-of-sequence tokens.
    #[arg(long = "no-stop-on-eos", visible_alias = "ignore-eos")]
    pub ignore_eos: bool,
    /// End before the first occurrence of this text (repeatable).
    #[arg(long, value_name = "TEXT")]
    pub stop: Vec<String>,
}

impl SamplingFlags {
    /// As asked of the scheduler; `None` = greedy.
    pub fn sampling(&self) -> Option<Sampling> {
        let temperature = if self.do_sample && self.temperature == 0.0 { 1.0 } else { self.temperature };
        (temperature != 0.0).then_some(Sampling {
            temperature,
            top_k: self.top_k,
            top_p: self.top_p,
            min_p: self.min_p,
            seed: self.seed,
        })
    }

    /// When generation ends early.
    pub fn stop(&self) -> Stop {
        Stop { strings: self.stop.clone(), token_ids: Vec::new(), ignore_eos: self.ignore_eos }
    }
}
