//! The header of a file: parsed from bytes, checked against them.

use std::collections::HashMap;
use std::ops::Range;

use crate::block::BlockFormat;
use crate::cursor::Cursor;
use crate::error::Reason;
use crate::metadata::Layout;

const MAGIC: [u8; 4] = *b"GGUF";
const ALIGNMENT_KEY: &str = "general.alignment";
const DEFAULT_ALIGNMENT: u64 = 32;
const MAX_ALIGNMENT: u64 = 1 << 16;
const MAX_DIMENSIONS: u32 = 4;

/// Smallest metadata pair: key length, value type, a one-byte value.
const MIN_PAIR_BYTES: u64 = 8 + 4 + 1;
/// Smallest tensor entry: name length, number of dimensions, one dimension, format, offset.
const MIN_TENSOR_BYTES: u64 = 8 + 4 + 8 + 4 + 8;

/// What a file holds; every range in it lies inside the file.
#[derive(Debug)]
pub struct Header {
    /// Metadata, to be viewed over the same bytes.
    pub metadata: Layout,
    /// Tensors in the order of the file.
    pub tensors: Vec<TensorInfo>,
    index: HashMap<String, usize>,
}

/// One tensor's place in the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TensorInfo {
    /// Its name.
    pub name: String,
    /// Dimensions, outermost first: a linear's weight is `[outputs, inputs]`.
    pub shape: Vec<usize>,
    /// How its values are stored.
    pub format: BlockFormat,
    /// Its bytes in the file.
    pub bytes: Range<usize>,
}

impl Header {
    /// Reads the header at the start of `bytes`, the whole file.
    ///
    /// # Errors
    /// The first thing wrong. Nothing is allocated in proportion to a number that the bytes do not back.
    pub fn parse(bytes: &[u8]) -> Result<Self, Reason> {
        let mut cursor = Cursor::new(bytes, 0);
        let header = || "the header".to_owned();
        if bytes.len() < MAGIC.len() || cursor.array(header)? != MAGIC {
            return Err(Reason::NotGguf);
        }
        match cursor.u32(header)? {
            2 | 3 => {}
            version => return Err(Reason::Version(version)),
        }
        let tensor_count = cursor.u64(header)?;
        let pair_count = cursor.u64(header)?;
        cursor.expect(
            tensor_count
                .saturating_mul(MIN_TENSOR_BYTES)
                .saturating_add(pair_count.saturating_mul(MIN_PAIR_BYTES)),
            || format!("a header of {pair_count} metadata keys and {tensor_count} tensors"),
        )?;

        let metadata = Layout::parse(&mut cursor, bytes, pair_count)?;
        let alignment = alignment(&metadata, bytes)?;
        let mut claims = Vec::new();
        for index in 0..tensor_count {
            claims.push(Claim::parse(&mut cursor, || format!("tensor {index} of {tensor_count}"))?);
        }
        let data_start = cursor.position().next_multiple_of(alignment);

        let mut tensors = Vec::with_capacity(claims.len());
        let mut index = HashMap::with_capacity(claims.len());
        for claim in claims {
            let tensor = claim.check(bytes.len(), data_start, alignment)?;
            if index.insert(tensor.name.clone(), tensors.len()).is_some() {
                return Err(Reason::Duplicate { what: format!("tensor {}", tensor.name) });
            }
            tensors.push(tensor);
        }
        refuse_overlap(&tensors)?;
        Ok(Self { metadata, tensors, index })
    }

    /// The tensor of that name.
    pub fn tensor(&self, name: &str) -> Option<&TensorInfo> {
        self.index.get(name).map(|&place| &self.tensors[place])
    }
}

impl TensorInfo {
    /// Number of values.
    pub fn len(&self) -> usize {
        self.shape.iter().product()
    }

    /// Whether there are no values; never so in a parsed header.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Values in the innermost dimension.
    pub fn row_len(&self) -> usize {
        self.shape[self.shape.len() - 1]
    }
}

/// A tensor entry as the file has it.
struct Claim {
    name: String,
    dims: Vec<u64>,
    format: u32,
    offset: u64,
}

impl Claim {
    fn parse(cursor: &mut Cursor<'_>, what: impl Fn() -> String) -> Result<Self, Reason> {
        let name = cursor.string(&what)?.to_owned();
        let what = || format!("tensor {name}");
        let count = cursor.u32(what)?;
        if !(1..=MAX_DIMENSIONS).contains(&count) {
            return Err(Reason::Dimensions { tensor: name, dims: vec![] });
        }
        let dims = (0..count).map(|_| cursor.u64(what)).collect::<Result<Vec<_>, _>>()?;
        let format = cursor.u32(what)?;
        let offset = cursor.u64(what)?;
        Ok(Self { name, dims, format, offset })
    }

    fn check(self, file_len: usize, data_start: usize, alignment: usize) -> Result<TensorInfo, Reason> {
        let Claim { name, dims, format, offset } = self;
        if dims.contains(&0) {
            return Err(Reason::Dimensions { tensor: name, dims });
        }
        let Some(format) = BlockFormat::from_ggml(format) else {
            return Err(Reason::Format { tensor: name, id: format });
        };
        let Some((shape, len)) = size(&dims, format) else {
            return Err(Reason::Overflow { tensor: name, dims });
        };
        let row = shape[shape.len() - 1];
        if !row.is_multiple_of(format.block_values()) {
            return Err(Reason::Ragged { tensor: name, row, block: format.block_values() });
        }
        if !offset.is_multiple_of(alignment as u64) {
            return Err(Reason::Misaligned { tensor: name, offset, alignment });
        }
        let start = usize::try_from(offset).ok().and_then(|offset| data_start.checked_add(offset));
        let end = start.and_then(|start| start.checked_add(len));
        match (start, end) {
            (Some(start), Some(end)) if end <= file_len => {
                Ok(TensorInfo { name, shape, format, bytes: start..end })
            }
            _ => Err(Reason::Truncated {
                what: format!("tensor {name}"),
                at: start.unwrap_or(usize::MAX),
                need: len as u64,
                have: start.map_or(0, |start| file_len.saturating_sub(start)),
            }),
        }
    }
}

/// Dimensions outermost first, and bytes in all; `None` beyond the address space.
fn size(dims: &[u64], format: BlockFormat) -> Option<(Vec<usize>, usize)> {
    let shape: Vec<usize> = dims.iter().rev().map(|&dim| dim.try_into().ok()).collect::<Option<_>>()?;
    let values = shape.iter().try_fold(1_usize, |product, &dim| product.checked_mul(dim))?;
    let bytes = (values / format.block_values()).checked_mul(format.block_bytes())?;
    Some((shape, bytes))
}

fn alignment(metadata: &Layout, bytes: &[u8]) -> Result<usize, Reason> {
    let alignment = match metadata.view(bytes).unsigned(ALIGNMENT_KEY) {
        Err(Reason::MissingKey(_)) => DEFAULT_ALIGNMENT,
        other => other?,
    };
    if !alignment.is_power_of_two() || alignment > MAX_ALIGNMENT {
        return Err(Reason::Alignment(alignment));
    }
    Ok(alignment as usize)
}

fn refuse_overlap(tensors: &[TensorInfo]) -> Result<(), Reason> {
    let mut by_start: Vec<&TensorInfo> = tensors.iter().collect();
    by_start.sort_by_key(|tensor| tensor.bytes.start);
    for pair in by_start.windows(2) {
        if pair[1].bytes.start < pair[0].bytes.end {
            let (first, second) = (pair[0].name.clone(), pair[1].name.clone());
            return Err(Reason::Overlap { first, second });
        }
    }
    Ok(())
}
