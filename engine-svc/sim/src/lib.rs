//! The engine's pure parts: what runs next, where keys and values live, and what it would cost.
//!
//! Nothing here reads a clock, does I/O or computes a model, so the live engine and a what-if replay run the
//! same code.
//!
//! - [`kv`]: the pool of KV blocks: reference counts, copy-on-write, prefix cache, eviction
//! - [`planner`]: which rows the next forward holds: inbox, chunked prefill, decode groups, preemption
//! - [`cost`]: how long a forward takes, by rows, tokens and KV length
//! - [`fit`]: a cost model from forwards that really ran
//! - [`replay`]: the planner and the cost model as an engine in virtual time
//! - [`wait`]: why a sequence waited between its arrival and its first forward

pub mod cost;
pub mod fit;
pub mod kv;
pub mod planner;
pub mod replay;
pub mod wait;
