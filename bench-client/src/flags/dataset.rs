//! Recorded or made-up requests instead of one prompt.

use std::path::PathBuf;

use anyhow::{Context as _, bail};
use clap::{Args, ValueEnum};

use crate::load::dataset::{
    Dataset, Fit,
    lengths::{Lengths, made_up},
    lines, read, recorded, sharegpt, traces,
};

/// The dataset, and how it is fitted to the server.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Dataset")]
pub struct DatasetFlags {
    /// Requests to send instead of --prompt.
    #[arg(long, value_enum, value_name = "KIND", conflicts_with_all = ["prompt", "token_ids", "prompt_repeats"])]
    pub dataset: Option<Kind>,
    /// File of the dataset.
    #[arg(long, value_name = "FILE", requires = "dataset")]
    pub dataset_path: Option<PathBuf>,
    /// random: prompt tokens, as 512, 100..200 or lognormal:MEDIAN,SIGMA.
    #[arg(long, value_name = "LENGTHS", default_value = "128", requires = "dataset")]
    pub input_len: Lengths,
    /// random: tokens to generate; --max-new-tokens when not given.
    #[arg(long, value_name = "LENGTHS", requires = "dataset")]
    pub output_len: Option<Lengths>,
    /// random: so many groups of prompts start with the same --prefix-len tokens.
    #[arg(long, value_name = "GROUPS", requires = "dataset")]
    pub shared_prefixes: Option<u32>,
    /// random: tokens of a shared prefix.
    #[arg(long, value_name = "TOKENS", default_value_t = 256, requires = "shared_prefixes")]
    pub prefix_len: usize,
    /// Factor on recorded lengths.
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0, requires = "dataset")]
    pub length_scale: f64,
    /// Factor on recorded times: 0.5 replays twice as fast.
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0, requires = "dataset")]
    pub time_scale: f64,
    /// Cut prompts to so many tokens.
    #[arg(long, value_name = "TOKENS", requires = "dataset")]
    pub max_input_len: Option<usize>,
    /// Cut recorded output lengths to so many tokens.
    #[arg(long, value_name = "TOKENS", requires = "dataset")]
    pub max_output_len: Option<u32>,
}

/// Kinds of datasets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Kind {
    /// A prompt per line.
    Lines,
    /// Made-up token ids of random lengths.
    Random,
    /// ShareGPT JSON; every human turn is a request.
    Sharegpt,
    /// Mooncake JSONL: times, lengths and shared prefixes.
    Mooncake,
    /// BurstGPT CSV: times and lengths.
    Burstgpt,
    /// Azure LLM trace CSV: times and lengths.
    Azure,
    /// What --jsonl-out of `run` or `record` wrote: times, lengths, tenants, classes and deadlines.
    Recorded,
}

impl DatasetFlags {
    /// Reads the dataset; `None` when none was asked for. `count` is how many requests a run sends.
    ///
    /// # Errors
    /// Names the file, the line or the flag that is wrong.
    pub fn load(&self, count: usize, seed: u64) -> anyhow::Result<Option<Dataset>> {
        let Some(kind) = self.dataset else { return Ok(None) };
        for (flag, factor) in [("--length-scale", self.length_scale), ("--time-scale", self.time_scale)] {
            anyhow::ensure!(factor.is_finite() && factor > 0.0, "{flag} {factor} must be a positive number");
        }
        let rows = if kind == Kind::Random {
            let prefixes = self.shared_prefixes.map(|groups| (groups, self.prefix_len.max(1)));
            made_up(count, self.input_len, self.output_len, prefixes, seed)
        } else {
            let Some(path) = &self.dataset_path else {
                bail!("--dataset {kind:?} needs --dataset-path FILE")
            };
            let text = read(path)?;
            let rows = match kind {
                Kind::Sharegpt => sharegpt::rows(&text),
                Kind::Mooncake => traces::mooncake(&text),
                Kind::Burstgpt => traces::burstgpt(&text),
                Kind::Azure => traces::azure(&text),
                Kind::Recorded => recorded::rows(&text),
                Kind::Lines | Kind::Random => Ok(lines(&text)),
            };
            rows.with_context(|| path.display().to_string())?
        };
        let fit = Fit {
            length_scale: self.length_scale,
            max_input: self.max_input_len,
            max_output: self.max_output_len,
            time_scale: self.time_scale,
        };
        Dataset::new(rows, fit).map(Some)
    }

    /// The dataset in words, for the header.
    pub fn words(&self, dataset: &Dataset) -> String {
        let name = match (self.dataset, &self.dataset_path) {
            (Some(Kind::Random), _) => {
                let prefixes = self.shared_prefixes.map_or(String::new(), |groups| {
                    format!(" after one of {groups} prefixes of {}", self.prefix_len)
                });
                format!("random prompts of {} tokens{prefixes}", self.input_len)
            }
            (_, Some(path)) => path.file_name().unwrap_or_default().to_string_lossy().into_owned(),
            _ => String::new(),
        };
        if dataset.cut.is_empty() { name } else { format!("{name} ({})", dataset.cut) }
    }
}
