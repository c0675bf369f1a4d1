//! What each subcommand does.
//!
//! - [`complete`]: one completion, as a person would see it
//! - [`run`]: load, join, report
//! - [`budget`]: the limits of a run
//! - [`explain`]: why one request waited
//! - [`progress`]: the live line of a run

pub mod budget;
pub mod complete;
pub mod explain;
pub mod progress;
pub mod run;
