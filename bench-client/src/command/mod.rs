//! What each subcommand does.
//!
//! - [`complete`]: one completion, as a person would see it
//! - [`run`]: load, join, report
//! - [`record`]: what other clients send
//! - [`diff`]: what moved between two sets of runs
//! - [`sweep`]: a grid of runs
//! - [`explain`]: why one request waited
//! - [`whatif`]: another budget on recorded traffic
//! - [`report`]: one HTML file of a run
//! - [`progress`]: the live line of a run

pub mod complete;
pub mod diff;
pub mod explain;
pub mod progress;
pub mod record;
pub mod report;
pub mod run;
pub mod sweep;
pub mod whatif;
