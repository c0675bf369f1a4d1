//! What the joined requests add up to, for people and for programs. Pure, except for writing files.
//!
//! - [`stats`]: percentiles and means of raw samples
//! - [`results`]: everything a run measured, as it stands in the JSON
//! - [`costs`]: what the pair costs: its engines' forwards and the delays between processes
//! - [`hand_overs`]: how long each hand-over between scheduler and engine took
//! - [`definitions`]: what the figures mean
//! - [`summary`]: from joined requests to results
//! - [`breakdown`]: where TTFT goes: means that add up, over all and over the slowest 1 %
//! - [`clock_info`]: the clocks, and the loop over all three
//! - [`validity`]: whether the client was fit to measure
//! - [`slo`]: which requests count towards goodput
//! - [`vllm`]: the field names of `vllm bench serve`
//! - [`text`]: the page a person reads
//! - [`html`]: one file with pictures
//! - [`rows`]: one line per request, as JSONL or CSV

pub mod breakdown;
pub mod clock_info;
pub mod costs;
pub mod definitions;
pub mod hand_overs;
pub mod html;
pub mod results;
pub mod rows;
pub mod slo;
pub mod stats;
pub mod summary;
pub mod text;
pub mod validity;
pub mod vllm;

pub use results::Results;
pub use summary::{Facts, summarize};
