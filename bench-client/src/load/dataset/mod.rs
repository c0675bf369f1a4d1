//! Recorded and made-up requests. A row says how long a prompt is, or what it is; the prompt itself is
//! made when it is asked, so that warm-up and repeats ask new ones. Pure, except for reading the file.
//!
//! - [`lengths`]: distributions of token counts
//! - [`recorded`]: what a run recorded of itself
//! - [`sharegpt`]: conversations as text
//! - [`traces`]: Mooncake, Azure and BurstGPT: times and lengths, no text

pub mod lengths;
pub mod recorded;
pub mod sharegpt;
pub mod traces;

use std::path::Path;

use anyhow::Context as _;

use super::random::Random;
use crate::target::{Ask, Caller, Prompt};

/// Ids below this are often special tokens; made-up prompts keep clear of them where they can.
const SPECIAL_IDS: u32 = 256;

/// One recorded request.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// Time from the first row, ns, when it was recorded.
    pub at_ns: Option<i64>,
    /// The prompt.
    pub input: Input,
    /// Tokens to generate, when it was recorded.
    pub output_tokens: Option<u32>,
    /// On whose behalf, when it was recorded.
    pub caller: Caller,
}

impl Row {
    /// A prompt of which nothing else was recorded.
    pub fn new(input: Input) -> Self {
        Self { at_ns: None, input, output_tokens: None, caller: Caller::default() }
    }
}

/// What is known of a prompt.
#[derive(Clone, Debug, PartialEq)]
pub enum Input {
    /// Its text.
    Text(String),
    /// Its length in tokens.
    Tokens(usize),
    /// Its length and the identities of its blocks: equal leading ids are a shared prefix.
    Blocks {
        /// Length in tokens.
        tokens: usize,
        /// One id per block; the last block may be partial.
        ids: Vec<u64>,
        /// Tokens per block.
        block: usize,
    },
}

/// Scales and caps of lengths and times; what they did is told in words.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fit {
    /// Factor on all lengths.
    pub length_scale: f64,
    /// Most prompt tokens.
    pub max_input: Option<usize>,
    /// Most tokens to generate.
    pub max_output: Option<u32>,
    /// Factor on all times: 0.5 replays twice as fast.
    pub time_scale: f64,
}

/// Rows to send, in order.
#[derive(Clone, Debug, PartialEq)]
pub struct Dataset {
    rows: Vec<Row>,
    /// What was cut, in words; empty when nothing was.
    pub cut: String,
}

impl Dataset {
    /// Fits `rows` to a server.
    ///
    /// # Errors
    /// When there are none.
    pub fn new(mut rows: Vec<Row>, fit: Fit) -> anyhow::Result<Self> {
        anyhow::ensure!(!rows.is_empty(), "the dataset holds no request");
        let (mut inputs, mut outputs) = (0, 0);
        for row in &mut rows {
            row.at_ns = row.at_ns.map(|ns| (ns as f64 * fit.time_scale) as i64);
            inputs += usize::from(fit.input(&mut row.input));
            outputs += usize::from(row.output_tokens.as_mut().is_some_and(|output| fit.output(output)));
        }
        let cut = fit.words(inputs, outputs, rows.len());
        Ok(Self { rows, cut })
    }

    /// Recorded times of the first `n` rows, ns; `None` when there are none.
    pub fn times(&self, n: usize) -> Option<Vec<i64>> {
        self.rows.iter().take(n).map(|r| r.at_ns).collect()
    }

    /// How many rows there are.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Never: a dataset holds at least one row.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The rows, fitted.
    pub fn rows(&self) -> &[Row] {
        &self.rows
    }

    /// The request of row `index` (counted round). `pass` tells warm-up and repeats apart: made-up
    /// prompts share prefixes within a pass, as recorded, and nothing between passes.
    pub fn ask(&self, pass: usize, index: usize, vocab_size: u32, default_output: u32) -> Ask {
        let place = index % self.rows.len();
        let row = &self.rows[place];
        let prompt = match &row.input {
            Input::Text(text) => Prompt::Text(text.clone()),
            Input::Tokens(tokens) => {
                let seed = salt(&[pass as u64, index as u64, 1]);
                Prompt::Ids(ids(seed, *tokens, vocab_size))
            }
            Input::Blocks { tokens, ids: blocks, block } => {
                let mut all = Vec::with_capacity(*tokens);
                for id in blocks {
                    let left = (*tokens - all.len()).min(*block);
                    all.extend(ids(salt(&[pass as u64, *id, 2]), left, vocab_size));
                }
                Prompt::Ids(all)
            }
        };
        let max_new_tokens = row.output_tokens.unwrap_or(default_output).max(1);
        Ask { prompt, max_new_tokens, caller: row.caller.clone() }
    }
}

impl Fit {
    /// Scales and caps a prompt; true when it was capped. Text has no token count to fit.
    fn input(&self, input: &mut Input) -> bool {
        let tokens = match input {
            Input::Text(_) => return false,
            Input::Tokens(tokens) => tokens,
            Input::Blocks { tokens, block, .. } => {
                *block = self.scaled(*block);
                tokens
            }
        };
        *tokens = self.scaled(*tokens);
        let most = self.max_input.unwrap_or(usize::MAX);
        let capped = *tokens > most;
        *tokens = (*tokens).min(most);
        capped
    }

    fn output(&self, tokens: &mut u32) -> bool {
        *tokens = self.scaled(*tokens as usize) as u32;
        let most = self.max_output.unwrap_or(u32::MAX);
        let capped = *tokens > most;
        *tokens = (*tokens).min(most);
        capped
    }

    fn scaled(&self, n: usize) -> usize {
        ((n as f64 * self.length_scale).round() as usize).max(1)
    }

    fn words(&self, inputs: usize, outputs: usize, rows: usize) -> String {
        let mut words = Vec::new();
        if self.length_scale != 1.0 {
            words.push(format!("lengths × {}", self.length_scale));
        }
        if self.time_scale != 1.0 {
            words.push(format!("times × {}", self.time_scale));
        }
        if let Some(most) = self.max_input.filter(|_| inputs > 0) {
            words.push(format!("{inputs} of {rows} prompts cut to {most} tokens"));
        }
        if let Some(most) = self.max_output.filter(|_| outputs > 0) {
            words.push(format!("{outputs} of {rows} outputs cut to {most} tokens"));
        }
        words.join(", ")
    }
}

/// Made-up ids that depend on `seed` only.
fn ids(seed: u64, count: usize, vocab_size: u32) -> Vec<u32> {
    let first = if vocab_size > 2 * SPECIAL_IDS { SPECIAL_IDS } else { 0 };
    let last = vocab_size.max(first + 2) - 1;
    let mut random = Random::new(seed);
    (0..count).map(|_| random.between(u64::from(first), u64::from(last)) as u32).collect()
}

fn salt(parts: &[u64]) -> u64 {
    parts.iter().fold(0, |seed, part| Random::new(seed ^ part.wrapping_mul(0x9e37_79b9_7f4a_7c15)).bits())
}

/// Reads a whole dataset file.
///
/// # Errors
/// Names the file.
pub fn read(path: &Path) -> anyhow::Result<String> {
    std::fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))
}

/// A prompt per line; empty lines are skipped.
pub fn lines(text: &str) -> Vec<Row> {
    let lines = text.lines().filter(|line| !line.trim().is_empty());
    lines.map(|l| Row::new(Input::Text(l.to_owned()))).collect()
}

#[cfg(test)]
mod tests;
