//! Firstlight's bench-client: makes load, joins the spans by request id, prints where TTFT goes.
//!
//! - [`flags`]: the command line
//! - [`command`]: what each subcommand does
//! - [`load`]: when to send what
//! - [`target`]: how one request is sent to a server, and what the client saw of it
//! - [`observe`]: spans, clocks and the budget lease of the services under load
//! - [`join`]: ten stamps per request, taken by three processes, into one chain of segments (pure)
//! - [`audit`]: whether counters and gauges kept elsewhere agree with what was measured
//! - [`selfcheck`]: what the client itself adds to every figure
//! - [`diff`]: what moved between two sets of runs of one load, with intervals (pure)
//! - [`sweep`]: a grid over limits or the load (pure, except for its file)
//! - [`whatif`]: recorded arrivals under another budget, in virtual time
//! - [`report`]: what the joined requests add up to, as text, JSON and files (pure)

pub mod audit;
pub mod command;
pub mod diff;
pub mod flags;
pub mod join;
pub mod load;
pub mod observe;
pub mod report;
pub mod selfcheck;
pub mod sweep;
pub mod target;
pub mod whatif;
