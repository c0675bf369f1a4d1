//! Views of parts of rows, such as the key columns of a fused `q|k|v` output.

use std::ops::Range;

/// Rows of equal width, `stride` elements apart.
#[derive(Clone, Copy, Debug)]
pub struct Rows<'a> {
    data: &'a [f32],
    stride: usize,
    columns: (usize, usize),
}

impl<'a> Rows<'a> {
    /// All columns of `data`, `[rows, width]`.
    ///
    /// # Panics
    /// If `data` is not a whole number of rows.
    pub fn new(data: &'a [f32], width: usize) -> Rows<'a> {
        Rows::columns(data, width, 0..width)
    }

    /// The given columns of `data`, `[rows, stride]`.
    ///
    /// # Panics
    /// If `data` is not a whole number of rows, or the columns are outside them.
    pub fn columns(data: &'a [f32], stride: usize, columns: Range<usize>) -> Rows<'a> {
        assert!(stride > 0 && data.len().is_multiple_of(stride), "{} is not rows of {stride}", data.len());
        assert!(columns.start <= columns.end && columns.end <= stride, "columns {columns:?} of {stride}");
        Rows { data, stride, columns: (columns.start, columns.end) }
    }

    /// How many rows there are.
    pub fn len(&self) -> usize {
        self.data.len() / self.stride
    }

    /// Whether there is no row.
    pub fn is_empty(&self) -> bool {
        self.data.is_empty()
    }

    /// Elements of one row.
    pub fn width(&self) -> usize {
        self.columns.1 - self.columns.0
    }

    /// Row `index`, `width` elements.
    #[inline]
    pub fn row(&self, index: usize) -> &'a [f32] {
        let row = &self.data[index * self.stride..][..self.stride];
        &row[self.columns.0..self.columns.1]
    }
}

/// Where heads lie inside rows: `count` heads of `dim` elements side by side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heads {
    /// Elements of a whole row.
    pub stride: usize,
    /// Column of the first head.
    pub first: usize,
    /// How many heads.
    pub count: usize,
    /// Elements of a head.
    pub dim: usize,
}

impl Heads {
    /// The heads of one row.
    ///
    /// # Panics
    /// If they do not lie inside it.
    pub fn of(self, row: &mut [f32]) -> impl Iterator<Item = &mut [f32]> {
        row[self.first..][..self.count * self.dim].chunks_exact_mut(self.dim)
    }
}
