//! Why a file is refused.

use std::io;
use std::path::PathBuf;

/// A file that cannot be used: which one, and why.
#[derive(Debug, thiserror::Error)]
#[error("{}: {reason}", path.display())]
pub struct GgufError {
    /// The file.
    pub path: PathBuf,
    /// What is wrong with it.
    #[source]
    pub reason: Reason,
}

/// What is wrong with a file, or with what was asked of it.
#[derive(Debug, thiserror::Error)]
pub enum Reason {
    /// The file cannot be opened or mapped.
    #[error("cannot be read: {0}")]
    Io(#[from] io::Error),
    /// The first four bytes are not `GGUF`.
    #[error("not a GGUF file")]
    NotGguf,
    /// A version other than 2 and 3, or a file of the other byte order.
    #[error("GGUF version {0} is not supported (2 and 3 are)")]
    Version(u32),
    /// The file ends before what its header announces.
    #[error("truncated: {what} at byte {at} needs {need} bytes, {have} are left")]
    Truncated {
        /// What was being read.
        what: String,
        /// Where it starts.
        at: usize,
        /// Bytes it needs at least.
        need: u64,
        /// Bytes there are.
        have: usize,
    },
    /// A string is not UTF-8.
    #[error("{what} is not UTF-8")]
    NotUtf8 {
        /// Which string.
        what: String,
    },
    /// A metadata value of a type that does not exist.
    #[error("{what} has the unknown value type {id}")]
    ValueType {
        /// Which value.
        what: String,
        /// Type id in the file.
        id: u32,
    },
    /// A boolean that is neither 0 nor 1.
    #[error("{what} is a boolean of value {byte}")]
    Bool {
        /// Which value.
        what: String,
        /// What is there.
        byte: u8,
    },
    /// Arrays of arrays of arrays … beyond any use.
    #[error("{what} nests arrays more than {limit} deep")]
    Nesting {
        /// Which value.
        what: String,
        /// Deepest nesting read.
        limit: usize,
    },
    /// The same metadata key or tensor name twice.
    #[error("{what} appears twice")]
    Duplicate {
        /// Which name.
        what: String,
    },
    /// `general.alignment` is not a power of two, or beyond any page size.
    #[error("general.alignment is {0}, not a power of two up to 65536")]
    Alignment(u64),
    /// A tensor with no dimensions, more than four, or one of 0.
    #[error("tensor {tensor} has the dimensions {dims:?}")]
    Dimensions {
        /// Which tensor.
        tensor: String,
        /// As in the file: fastest first.
        dims: Vec<u64>,
    },
    /// A tensor whose size in bytes exceeds the address space.
    #[error("tensor {tensor} of dimensions {dims:?} exceeds the address space")]
    Overflow {
        /// Which tensor.
        tensor: String,
        /// As in the file: fastest first.
        dims: Vec<u64>,
    },
    /// A tensor format this crate does not read.
    #[error("tensor {tensor} has the format {id}{}, which is not supported", block_name(*id))]
    Format {
        /// Which tensor.
        tensor: String,
        /// ggml type id in the file.
        id: u32,
    },
    /// Rows that are not a whole number of blocks.
    #[error("tensor {tensor}: rows of {row} values are not whole blocks of {block}")]
    Ragged {
        /// Which tensor.
        tensor: String,
        /// Values per row.
        row: usize,
        /// Values per block.
        block: usize,
    },
    /// A tensor that does not start on the file's alignment.
    #[error("tensor {tensor} starts at offset {offset}, not a multiple of {alignment}")]
    Misaligned {
        /// Which tensor.
        tensor: String,
        /// Offset from the start of the tensor data.
        offset: u64,
        /// The file's alignment.
        alignment: usize,
    },
    /// Two tensors that share bytes.
    #[error("tensors {first} and {second} overlap")]
    Overlap {
        /// The one that starts first.
        first: String,
        /// The one that starts inside it.
        second: String,
    },
    /// A metadata key that was asked for is not there.
    #[error("metadata key {0} is missing")]
    MissingKey(String),
    /// A metadata key has another type than asked for, or a value outside the type asked for.
    #[error("metadata key {key} is not {wanted}")]
    WrongType {
        /// The key.
        key: String,
        /// What was asked for.
        wanted: &'static str,
    },
    /// A tensor that was asked for is not there.
    #[error("tensor {0} is missing")]
    MissingTensor(String),
}

fn block_name(id: u32) -> &'static str {
    match id {
        3 | 7 => " (Q4_1 or Q5_1 of an old version)",
        6 => " (Q5_0)",
        9 => " (Q8_1)",
        10 => " (Q2_K)",
        11 => " (Q3_K)",
        15 => " (Q8_K)",
        16..=23 | 29 => " (an IQ format)",
        24..=28 => " (plain integers or f64)",
        _ => "",
    }
}
