//! A file opened by mmap, and its tensors.
//!
//! Contract of the `unsafe` here: the file must not be truncated or written while it is mapped. Model files are
//! replaced by rename, never edited in place; whoever edits one under a running engine gets what they did.

use std::fs::File;
use std::ops::Range;
use std::path::{Path, PathBuf};

use memmap2::{Mmap, UncheckedAdvice};

use crate::error::{GgufError, Reason};
use crate::header::{Header, TensorInfo};
use crate::metadata::Metadata;

/// An open file. Its pages are read when touched.
#[derive(Debug)]
pub struct GgufFile {
    path: PathBuf,
    map: Mmap,
    header: Header,
}

impl GgufFile {
    /// Opens a file and checks its header.
    ///
    /// # Errors
    /// Names the path and the first thing wrong.
    pub fn open(path: &Path) -> Result<Self, GgufError> {
        let refuse = |reason: Reason| GgufError { path: path.to_owned(), reason };
        let file = File::open(path).map_err(|error| refuse(error.into()))?;
        // SAFETY: see the contract at the top of this file.
        let map = unsafe { Mmap::map(&file) }.map_err(|error| refuse(error.into()))?;
        let header = Header::parse(&map).map_err(refuse)?;
        Ok(Self { path: path.to_owned(), map, header })
    }

    /// The file's path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The key-value pairs.
    pub fn metadata(&self) -> Metadata<'_> {
        self.header.metadata.view(&self.map)
    }

    /// All tensors, in the order of the file.
    pub fn tensors(&self) -> impl Iterator<Item = Tensor<'_>> {
        self.header.tensors.iter().map(|info| self.view(info))
    }

    /// The tensor of that name, if there is one.
    pub fn tensor(&self, name: &str) -> Option<Tensor<'_>> {
        self.header.tensor(name).map(|info| self.view(info))
    }

    /// Gives back the memory of pages read so far; they are read again when touched.
    pub fn release_pages(&self) {
        // SAFETY: the mapping is of a file and never written, so dropped pages come back unchanged.
        // A system that refuses the advice keeps the memory, nothing else.
        let _ = unsafe { self.map.unchecked_advise(UncheckedAdvice::DontNeed) };
    }

    /// Puts the path in front of a reason that came up while reading this file.
    pub fn error(&self, reason: Reason) -> GgufError {
        GgufError { path: self.path.clone(), reason }
    }

    fn view<'a>(&'a self, info: &'a TensorInfo) -> Tensor<'a> {
        Tensor { info, bytes: &self.map[info.bytes.clone()] }
    }
}

/// One tensor of an open file.
#[derive(Debug, Clone, Copy)]
pub struct Tensor<'a> {
    /// Name, shape and format.
    pub info: &'a TensorInfo,
    /// Its blocks.
    pub bytes: &'a [u8],
}

impl<'a> Tensor<'a> {
    /// The blocks of some rows (a row is the innermost dimension).
    ///
    /// # Panics
    /// When `rows` reaches beyond the tensor.
    pub fn row_bytes(&self, rows: Range<usize>) -> &'a [u8] {
        let format = self.info.format;
        let row = self.info.row_len() / format.block_values() * format.block_bytes();
        &self.bytes[rows.start * row..rows.end * row]
    }

    /// The values of some rows, as many as `values` holds.
    ///
    /// # Panics
    /// When `rows` reaches beyond the tensor or `values` has another length.
    pub fn read_rows(&self, rows: Range<usize>, values: &mut [f32]) {
        self.info.format.dequantize(self.row_bytes(rows), values);
    }
}
