//! One safetensors file opened by mmap.
//!
//! Contract of the `unsafe` here: as for GGUF files, the file must not change while it is mapped.

use std::fs::File;
use std::ops::Range;
use std::path::{Path, PathBuf};

use firstlight_gguf::BlockFormat;
use memmap2::{Mmap, UncheckedAdvice};
use safetensors::tensor::Metadata;
use safetensors::{Dtype, SafeTensors};

use crate::weights::error::LoadError;

/// Length of the header's length field.
const PREFIX_BYTES: usize = 8;

/// An open file; every tensor's range lies inside it.
#[derive(Debug)]
pub(super) struct SafeTensorsFile {
    path: PathBuf,
    map: Mmap,
    data_start: usize,
    metadata: Metadata,
}

/// A tensor's place in an open file.
#[derive(Debug, Clone)]
pub(super) struct Stored<'a> {
    pub shape: Vec<usize>,
    pub format: BlockFormat,
    pub bytes: &'a [u8],
}

impl SafeTensorsFile {
    pub(super) fn open(path: &Path) -> Result<Self, LoadError> {
        let io = |source| LoadError::Io { path: path.to_owned(), source };
        let file = File::open(path).map_err(io)?;
        // SAFETY: see the contract at the top of this file.
        let map = unsafe { Mmap::map(&file) }.map_err(io)?;
        let (header, metadata) = SafeTensors::read_metadata(&map)
            .map_err(|source| LoadError::SafeTensors { path: path.to_owned(), source })?;
        let data_start = PREFIX_BYTES + header;
        Ok(Self { path: path.to_owned(), map, data_start, metadata })
    }

    pub(super) fn names(&self) -> Vec<String> {
        self.metadata.tensors().into_keys().collect()
    }

    /// The tensor of that name, if it is there.
    pub(super) fn tensor(&self, name: &str) -> Result<Option<Stored<'_>>, LoadError> {
        let Some(info) = self.metadata.info(name) else { return Ok(None) };
        let format = match info.dtype {
            Dtype::F32 => BlockFormat::F32,
            Dtype::F16 => BlockFormat::F16,
            Dtype::BF16 => BlockFormat::Bf16,
            other => {
                return Err(LoadError::Unsupported {
                    origin: self.path.display().to_string(),
                    what: format!("tensor {name} of type {other:?}"),
                });
            }
        };
        let (start, end) = info.data_offsets;
        let bytes = &self.map[self.data_start + start..self.data_start + end];
        Ok(Some(Stored { shape: info.shape.clone(), format, bytes }))
    }

    pub(super) fn release_pages(&self) {
        // SAFETY: the mapping is of a file and never written, so dropped pages come back unchanged.
        // An unsupported advice costs memory only.
        let _ = unsafe { self.map.unchecked_advise(UncheckedAdvice::DontNeed) };
    }
}

impl Stored<'_> {
    /// Values at `range` in storage order, as many as `values` holds.
    pub(super) fn read(&self, range: Range<usize>, values: &mut [f32]) {
        let width = self.format.block_bytes();
        self.format.dequantize(&self.bytes[range.start * width..range.end * width], values);
    }
}
