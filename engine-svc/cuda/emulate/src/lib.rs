//! The CUDA kernels on the CPU, for tests: the sources that the GPU gets, compiled by the system's C++ compiler
//!
//! Every thread of a block is a fiber; races on shared memory, missed barriers, and reads and writes outside of
//! buffers are errors.
//!
//! - [`kernels`]: a module's kernels
//! - [`machine`]: what executes them, compiled from the C++ files beside
//! - [`memory`]: memory of the device, guarded and poisoned
//! - [`board`]: all of it as a [`firstlight_cuda::board::Board`], which does everything as late as it may

pub mod board;
pub mod kernels;
pub mod machine;
pub mod memory;
