//! What the joined requests add up to, for people and for programs. Pure, except for writing files.
//!
//! - [`stats`]: percentiles and means of raw samples
//! - [`results`]: everything a run measured, as it stands in the JSON
//! - [`summary`]: from joined requests to results
//! - [`breakdown`]: where TTFT goes: means that add up, over all and over the slowest 1 %
//! - [`clock_info`]: the clocks, and the loop over all three
//! - [`validity`]: whether the client was fit to measure
//! - [`text`]: the page a person reads
//! - [`rows`]: one line per request, as JSONL or CSV

pub mod breakdown;
pub mod clock_info;
pub mod results;
pub mod rows;
pub mod stats;
pub mod summary;
pub mod text;
pub mod validity;

pub use results::Results;
pub use summary::{Facts, summarize};
