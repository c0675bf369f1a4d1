//! One pool of fixed KV blocks: reference-counted, copy-on-write, with a prefix cache over full blocks and
//! LRU eviction under pressure. The pool only keeps the books; the backend owns the memory.
//!
//! - [`pool`]: the pool and its operations
//! - [`table`]: the blocks of one sequence
//! - [`lru`]: the order of eviction

mod lru;
pub mod pool;
pub mod table;

pub use pool::{BlockCopy, KvPool};
pub use table::BlockTable;

#[cfg(test)]
mod tests;
