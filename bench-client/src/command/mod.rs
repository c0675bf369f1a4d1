//! What each subcommand does.
//!
//! - [`complete`]: one completion, as a person would see it
//! - [`run`]: load, join, report
//! - [`explain`]: why one request waited
//! - [`whatif`]: another budget on recorded traffic
//! - [`report`]: one HTML file of a run
//! - [`progress`]: the live line of a run

pub mod complete;
pub mod explain;
pub mod progress;
pub mod report;
pub mod run;
pub mod whatif;
