//! The engine's CUDA kernels, and what the host must know to launch them
//!
//! The kernels are CUDA C++ in `kernels/`, compiled at start for the card that is found. The same sources run on the
//! CPU through `emulate/`, which is how their logic is tested on machines without a GPU.
//!
//! - [`arguments`]: the structs that kernels take, as the device reads them
//! - [`kv`]: the layout of the KV pool
//! - [`launch`]: which kernel with how many blocks, threads and bytes of shared memory
//! - [`source`]: the sources, in modules that are compiled together
//! - [`tiles`]: the rows of a prefill forward in tiles of one sequence each
//! - [`nvrtc`]: the run-time compiler, loaded when it is needed
//! - [`nvtx`]: names for a profiler, loaded when they are asked for
//! - [`driver`]: a GPU, its memory, and modules on it, loaded when it is needed
//! - [`cache`]: compiled modules on disk
//! - [`board`]: what kernels and multiplications run on
//! - `torch`, `gpu`: libtorch on a GPU, and the GPU as a board; behind the feature `torch`
//!
//! Nothing here links a CUDA library.

pub mod arguments;
pub mod board;
pub mod cache;
pub mod driver;
#[cfg(feature = "torch")]
pub mod gpu;
pub mod kv;
pub mod launch;
mod library;
pub mod nvrtc;
pub mod nvtx;
pub mod source;
pub mod tiles;
#[cfg(feature = "torch")]
pub mod torch;
