//! A shadow: one other budget, run in virtual time on the live arrivals, with its predicted TTFT as a metric beside
//! the real one. It decides nothing, and whatever it costs is taken from no request: the dispatch task hands it
//! news without waiting, and news that find its channel full are dropped and counted.
//!
//! - [`policy`]: the other budget, from a file
//! - [`feed`]: what the dispatch task tells
//! - [`costs`]: what the live engines cost, learnt from their forwards
//! - [`task`]: the task that replays

pub mod costs;
pub mod feed;
pub mod policy;
pub mod task;

pub use feed::{Feed, News};
pub use policy::ShadowPolicy;
pub use task::Shadow;
