//! A shadow: one other budget, run in virtual time on the live arrivals, with its predicted TTFT as a metric beside
//! the real one. It decides nothing, and no request waits for it: it has a thread of its own, the dispatch task hands it
//! news without waiting, and news that find its channel full are dropped and counted.
//!
//! - [`policy`]: the other budget, from a file
//! - [`feed`]: what the dispatch task tells
//! - [`costs`]: what the live engines cost, learnt from their forwards
//! - [`thread`]: the thread that replays

pub mod costs;
pub mod feed;
pub mod policy;
pub mod thread;

pub use feed::{Feed, News, Ran};
pub use policy::ShadowPolicy;
pub use thread::Shadow;
