//! How much TTFT, each part of it and each cause of waiting moved between two sets of runs of one load,
//! with 95 % intervals. Pure, except for reading the runs.
//!
//! - [`side`]: the runs of one side, from the lines of `run --jsonl-out`
//! - [`pairs`]: the same request on both sides; refuses what is not comparable
//! - [`quantile`]: quantiles whose parts add up
//! - [`blocks`]: how far neighbouring requests depend on each other
//! - [`bootstrap`]: resampled requests and runs, and how sure a movement is
//! - [`frame`]: the figures that move together: a time and what it is made of
//! - [`results`]: everything that was compared, as it stands in the JSON
//! - [`compare`]: from pairs to results
//! - [`gate`]: the conditions of `--fail-if`
//! - [`text`]: the page a person reads

pub mod blocks;
pub mod bootstrap;
pub mod compare;
pub mod frame;
pub mod gate;
pub mod pairs;
pub mod quantile;
pub mod results;
pub mod side;
pub mod text;

pub use compare::compare;
pub use gate::Gate;
pub use results::Diff;
pub use side::Side;

#[cfg(test)]
mod tests;
