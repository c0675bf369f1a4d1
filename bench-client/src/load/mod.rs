//! When to send what.
//!
//! - [`arrivals`]: intended send times (pure)
//! - [`prompts`]: what is asked (pure)
//! - [`dataset`]: recorded and made-up requests
//! - [`random`]: the seeded noise both draw from
//! - [`fingerprint`]: what tells one request of a load from another (pure)
//! - [`pacer`]: a thread that wakes at each intended time
//! - [`hang_up`]: clients that do not wait for the end
//! - [`drive`]: sends a run and gathers its records
//! - [`live`]: what is known while the run goes on

pub mod arrivals;
pub mod dataset;
pub mod drive;
pub mod fingerprint;
pub mod hang_up;
pub mod live;
pub mod pacer;
pub mod prompts;
pub mod random;

pub use arrivals::Arrivals;
