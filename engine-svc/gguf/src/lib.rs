//! GGUF files: header, metadata, tensors by mmap, block formats.
//!
//! A file is untrusted: everything its header claims is checked against the bytes that are there
//! before anything is allocated or followed, and a refusal names the path and the reason.
//!
//! * [`file`]: a file opened by mmap, and its tensors
//! * [`header`]: the header, parsed and checked; pure
//! * [`metadata`]: typed access to the key-value pairs
//! * [`block`]: the formats of tensor data, and their values as `f32`
//! * [`error`]: why a file is refused
//!
//! Specification: <https://github.com/ggml-org/ggml/blob/master/docs/gguf.md>.

pub mod block;
pub mod cursor;
pub mod error;
pub mod file;
pub mod header;
pub mod metadata;

pub use block::BlockFormat;
pub use error::{GgufError, Reason};
pub use file::{GgufFile, Tensor};
pub use header::{Header, TensorInfo};
pub use metadata::{Array, Metadata, Value};
