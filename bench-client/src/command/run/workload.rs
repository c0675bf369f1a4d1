//! What the flags ask for: passes of requests, each with its due times.

use crate::{
    flags::run::RunFlags,
    load::{
        Arrivals,
        drive::Plan,
        hang_up::HangUps,
        pacer::Due,
        prompts::{Prompts, Source},
    },
    target::Prompt,
};

/// The load of a run: warm-ups and measured passes.
#[derive(Clone, Debug)]
pub struct Workload {
    arrivals: Arrivals,
    prompts: Prompts,
    seed: u64,
    max_concurrency: Option<usize>,
    prompts_used: usize,
    hang_ups: Option<HangUps>,
    /// Requests per pass.
    pub count: usize,
    /// Passes before the measured ones.
    pub warmups: usize,
    /// Measured passes.
    pub repeats: usize,
    /// The load in words.
    pub words: String,
}

impl Workload {
    /// The load that `flags` ask of a server with a vocabulary of `vocab_size`, which takes text or not.
    ///
    /// # Errors
    /// When a flag is wrong, or the dataset cannot be read.
    pub fn of(flags: &RunFlags, vocab_size: u32, takes_text: bool) -> anyhow::Result<Self> {
        let load = &flags.load;
        let dataset = flags.dataset.load(load.count(None), load.load_seed)?;
        let recorded = dataset.as_ref().filter(|d| d.times(1).is_some());
        let count = load.count(recorded.map(|d| d.len()));
        let arrivals = load.arrivals(recorded.and_then(|d| d.times(count)))?;
        let mut words = load.words(&arrivals, count);
        if let Some(dataset) = &dataset {
            words = format!("{words} · {}", flags.dataset.words(dataset));
        }
        let repeats = load.prompt_repeats.max(1);
        let source = match (dataset, &load.token_ids) {
            (Some(dataset), _) => Source::Dataset(dataset),
            (None, Some(ids)) => Source::Same(Prompt::Ids(ids.repeat(repeats))),
            (None, None) if takes_text => {
                Source::Same(Prompt::Text(vec![load.prompt.as_str(); repeats].join(" ")))
            }
            (None, None) => Source::Same(Prompt::Ids((1..=3).cycle().take(3 * repeats).collect())),
        };
        let (unique, max_new_tokens) = (load.unique_prompts, load.max_new_tokens);
        Ok(Self {
            arrivals,
            prompts: Prompts { source, unique, max_new_tokens, vocab_size },
            seed: load.load_seed,
            max_concurrency: load.max_concurrency,
            prompts_used: flags.prompts_used,
            hang_ups: load.hang_ups()?,
            count,
            warmups: load.warmup_runs,
            repeats: load.repeat_runs as usize,
            words,
        })
    }

    /// When the requests of pass `pass` are due.
    pub fn due(&self, pass: usize) -> Due {
        match &self.arrivals {
            Arrivals::AfterPrevious(gap) => Due::AfterPrevious { count: self.count, gap: *gap },
            other => Due::At(other.times(self.count, self.seed.wrapping_add(pass as u64))),
        }
    }

    /// Warm-up `index`.
    pub fn warmup(&self, index: usize, label: &str) -> Plan {
        self.pass(index, index, format!("{label}-w{index}"))
    }

    /// Measured pass `index`.
    pub fn repeat(&self, index: usize, label: &str) -> Plan {
        self.pass(self.warmups + index, index, format!("{label}-r{index}"))
    }

    fn pass(&self, pass: usize, run: usize, id_prefix: String) -> Plan {
        let ask = |i| self.prompts.ask(self.prompts_used + pass, i, self.count);
        let asks = (0..self.count).map(ask).collect();
        let (due, max_concurrency, hang_ups) = (self.due(pass), self.max_concurrency, self.hang_ups);
        Plan { due, asks, max_concurrency, hang_ups, id_prefix, run }
    }
}
