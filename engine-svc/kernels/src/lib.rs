//! CPU kernels of the engine: everything a forward computes, over plain `f32` activation buffers.
//!
//! * [`pool`]: the one thread pool, which also fixes the instruction set
//! * [`isa`]: which instruction set the kernels use
//! * [`buffer`], [`rows`]: aligned owned memory, and views of rows inside it
//! * [`linear`]: `y = x·Wᵀ + b` over weights packed once, in full or reduced precision
//! * [`kv`], [`attention`]: the paged KV pool and attention on it in place
//! * [`norm`], [`rope`], [`activation`], [`elementwise`]: the rest of a layer
//!
//! **Batch invariance.** A row's result has the same bits whatever the number of rows, its place
//! among them and the number of threads: every output element is reduced in one fixed order. It may
//! differ between instruction sets.

pub mod activation;
#[cfg(target_arch = "x86_64")]
mod amx;
pub mod attention;
pub mod buffer;
mod disjoint;
pub mod elementwise;
pub mod isa;
pub mod kv;
pub mod linear;
mod math;
pub mod norm;
pub mod pool;
mod prefetch;
pub mod rope;
#[cfg(target_arch = "x86_64")]
mod rounding;
pub mod rows;
