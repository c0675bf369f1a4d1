//! 8-bit and 4-bit weights with a scale per block of 32, in the encodings of GGUF (ggml's `Q8_0`,
//! `Q4_0` and `Q4_1`), reordered for the kernels.
//!
//! A panel is three strips of 16 outputs. A strip holds, for each block of 32 k, the weights as unsigned
//! bytes or nibbles, and after all of those, for each block, 16 scales (and for `Q4_1` 16 minima) as
//! 16-bit floats:
//! * 8 bits: `[8][16][4]`, k = 4·i + j, each weight plus 128
//! * 4 bits: `[4][16][4]`, the low nibble for k = 4·i + j, the high one for 16 + 4·i + j; `Q4_0` plus 8
//!
//! A weight is `scale · (byte - offset)`, or `scale · byte + minimum`.

/// A module's kernels over its `rows::<ROWS, FORMAT>`, in the order of [`Encoding::number`]: tiles of up to 4
/// rows.
#[cfg(target_arch = "x86_64")]
macro_rules! tile_kernels {
    ($machine:literal) => {
        pub(super) const KERNELS: [$crate::linear::tile::TileKernel; 3] =
            [up_to_4::<Q8_0>, up_to_4::<Q4_0>, up_to_4::<Q4_1>];

        /// # Safety
        #[doc = concat!("As [`Tile`] says, on a machine with ", $machine, ".")]
        unsafe fn up_to_4<const FORMAT: u8>(tile: &Tile) {
            // SAFETY: passed on.
            unsafe {
                match tile.rows {
                    1 => rows::<1, FORMAT>(tile),
                    2 => rows::<2, FORMAT>(tile),
                    3 => rows::<3, FORMAT>(tile),
                    4 => rows::<4, FORMAT>(tile),
                    rows => unreachable!("a tile of {rows} rows"),
                }
            }
        }
    };
}

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
pub(super) mod operand;
mod portable;
mod quantise;

use half::f16;

use super::WeightFormat;
use super::operand::Operand;
use super::tile::{Kernel, PANEL};
use crate::buffer::Buffer;
use crate::disjoint::SharedMut;
use crate::isa::Isa;
use crate::pool::Pool;

/// Weights that share a scale.
pub(super) const BLOCK: usize = 32;

/// Outputs of a strip: the lanes of one vector.
const STRIP: usize = 16;

/// Bytes of a strip's weights of 4 k, or 8 in nibbles: one vector.
const GROUP_BYTES: usize = STRIP * 4;

/// Bytes of 16 scales or minima.
const NUMBERS_BYTES: usize = STRIP * size_of::<f16>();

/// How a block format encodes its weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Encoding {
    pub(super) format: WeightFormat,
    /// 4 or 8.
    pub(super) bits: usize,
    /// Whether there is a minimum; if not, bytes are offset by half their range.
    pub(super) minimum: bool,
}

/// The encodings by number, since a kernel is compiled for one by a constant parameter.
const Q8_0: u8 = 0;
const Q4_0: u8 = 1;
const Q4_1: u8 = 2;

impl Encoding {
    /// # Panics
    /// If the format has no blocks.
    fn of(format: WeightFormat) -> Encoding {
        Encoding::numbered(Encoding::number(format))
    }

    /// # Panics
    /// If the format has no blocks.
    fn number(format: WeightFormat) -> u8 {
        match format {
            WeightFormat::Q8_0 => Q8_0,
            WeightFormat::Q4_0 => Q4_0,
            WeightFormat::Q4_1 => Q4_1,
            WeightFormat::F32 | WeightFormat::Bf16 => panic!("{format:?} has no blocks"),
        }
    }

    const fn numbered(number: u8) -> Encoding {
        match number {
            Q8_0 => Encoding { format: WeightFormat::Q8_0, bits: 8, minimum: false },
            Q4_0 => Encoding { format: WeightFormat::Q4_0, bits: 4, minimum: false },
            _ => Encoding { format: WeightFormat::Q4_1, bits: 4, minimum: true },
        }
    }

    /// Vectors of weights in one block of a strip.
    pub(super) const fn groups(self) -> usize {
        BLOCK * self.bits / 32
    }

    /// Vectors of scales and minima that go with a block.
    pub(super) const fn numbers(self) -> usize {
        if self.minimum { 2 } else { 1 }
    }

    /// Bytes of one block of one output in a GGUF file.
    const fn file_bytes(self) -> usize {
        BLOCK * self.bits / 8 + 2 * self.numbers()
    }

    /// Where in a strip the scales begin.
    pub(super) const fn numbers_start(self, blocks: usize) -> usize {
        blocks * self.groups() * GROUP_BYTES
    }

    /// Bytes of one strip.
    pub(super) const fn strip_bytes(self, blocks: usize) -> usize {
        (self.numbers_start(blocks) + blocks * self.numbers() * NUMBERS_BYTES).next_multiple_of(64)
    }

    /// Bytes of one panel.
    pub(super) const fn panel_bytes(self, blocks: usize) -> usize {
        PANEL / STRIP * self.strip_bytes(blocks)
    }
}

/// A packed matrix `[n, k]`.
#[derive(Debug)]
pub(super) struct BlockPanels {
    encoding: Encoding,
    blocks: usize,
    data: Buffer<u8>,
}

impl BlockPanels {
    /// Quantises and packs the float rows that `fill` writes.
    pub(super) fn quantise<F>(pool: &Pool, format: WeightFormat, n: usize, k: usize, fill: F) -> BlockPanels
    where
        F: Fn(usize, &mut [f32]) + Sync,
    {
        let encoding = Encoding::of(format);
        let padded = k.next_multiple_of(BLOCK);
        BlockPanels::build(pool, encoding, n, padded / BLOCK, || {
            let mut row = vec![0.0; padded];
            let fill = &fill;
            move |index, out: &mut [u8]| {
                fill(index, &mut row[..k]);
                quantise::row(encoding, &row, out);
            }
        })
    }

    /// Packs rows that are already encoded as in a GGUF file.
    pub(super) fn repack<F>(pool: &Pool, format: WeightFormat, n: usize, k: usize, fill: F) -> BlockPanels
    where
        F: Fn(usize, &mut [u8]) + Sync,
    {
        BlockPanels::build(pool, Encoding::of(format), n, k / BLOCK, || {
            let fill = &fill;
            move |index, out: &mut [u8]| fill(index, out)
        })
    }

    /// Packs rows from a source of encoded rows, one source per panel.
    fn build<S, R>(pool: &Pool, encoding: Encoding, n: usize, blocks: usize, source: S) -> BlockPanels
    where
        S: Fn() -> R + Sync,
        R: FnMut(usize, &mut [u8]),
    {
        let panel_bytes = encoding.panel_bytes(blocks);
        let mut data = Buffer::<u8>::zeroed(n.div_ceil(PANEL) * panel_bytes);
        let out = SharedMut::new(&mut data);
        pool.share(n.div_ceil(PANEL), |panel| {
            let mut read = source();
            let mut row = vec![0; blocks * encoding.file_bytes()];
            // SAFETY: each panel is handed to one thread only.
            let out = unsafe { out.slice(panel * panel_bytes, panel_bytes) };
            let first = panel * PANEL;
            for column in 0..PANEL.min(n - first) {
                read(first + column, &mut row);
                place(encoding, blocks, &row, column, out);
            }
        });
        BlockPanels { encoding, blocks, data }
    }

    /// Which format this is.
    pub(super) fn format(&self) -> WeightFormat {
        self.encoding.format
    }

    /// Where the panels start, and the bytes of each.
    pub(super) fn raw(&self) -> (*const u8, usize) {
        (self.data.as_ptr(), self.encoding.panel_bytes(self.blocks))
    }

    /// Bytes of all panels.
    pub(super) fn bytes(&self) -> usize {
        self.data.len()
    }

    /// The kernel for these weights.
    pub(super) fn kernel(&self, isa: Isa) -> Kernel {
        let (max_rows, kernels) = match isa {
            Isa::Portable => (1, portable::KERNELS),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => (4, avx2::KERNELS),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 | Isa::Avx512Bf16 | Isa::Amx => (avx512::MAX_ROWS, avx512::KERNELS),
        };
        let compute = kernels[usize::from(Encoding::number(self.format()))];
        Kernel { max_rows, operand: Operand::Blocks, compute, strips: None }
    }

    /// Reads back row `index` as floats; `out` may be shorter than the padded row.
    pub(super) fn unpack_row(&self, index: usize, out: &mut [f32]) {
        let (_, panel_bytes) = self.raw();
        let panel = &self.data[index / PANEL * panel_bytes..][..panel_bytes];
        let column = Column::new(self.encoding, self.blocks, panel, index % PANEL);
        for (block, out) in out.chunks_mut(BLOCK).enumerate() {
            let (scale, added) = column.scales(block);
            for (k, out) in out.iter_mut().enumerate() {
                *out = scale * f32::from(column.byte(block, k)) + added;
            }
        }
    }
}

/// One output's part of a panel.
#[derive(Clone, Copy)]
pub(super) struct Column<'a> {
    encoding: Encoding,
    blocks: usize,
    strip: &'a [u8],
    lane: usize,
}

impl<'a> Column<'a> {
    pub(super) fn new(encoding: Encoding, blocks: usize, panel: &'a [u8], column: usize) -> Column<'a> {
        let strip_bytes = encoding.strip_bytes(blocks);
        let strip = &panel[column / STRIP * strip_bytes..][..strip_bytes];
        Column { encoding, blocks, strip, lane: column % STRIP }
    }

    /// The stored weight of the k-th of a block.
    pub(super) fn byte(self, block: usize, k: usize) -> u8 {
        let at = |k: usize| {
            let group = block * self.encoding.groups() + k / 4;
            self.strip[group * GROUP_BYTES + self.lane * 4 + k % 4]
        };
        match self.encoding.bits {
            8 => at(k),
            _ if k < 16 => at(k) & 15,
            _ => at(k - 16) >> 4,
        }
    }

    /// A block's scale and what to add, such that a weight is `scale · byte + added`.
    pub(super) fn scales(self, block: usize) -> (f32, f32) {
        let number = |index: usize| {
            let vector = block * self.encoding.numbers() + index;
            let at = self.encoding.numbers_start(self.blocks) + vector * NUMBERS_BYTES + 2 * self.lane;
            f16::from_le_bytes([self.strip[at], self.strip[at + 1]]).to_f32()
        };
        let scale = number(0);
        let offset = (1 << (self.encoding.bits - 1)) as f32;
        (scale, if self.encoding.minimum { number(1) } else { -offset * scale })
    }
}

/// Writes an encoded row into column `column` of a panel.
fn place(encoding: Encoding, blocks: usize, row: &[u8], column: usize, panel: &mut [u8]) {
    let strip_bytes = encoding.strip_bytes(blocks);
    let strip = &mut panel[column / STRIP * strip_bytes..][..strip_bytes];
    let (weights, numbers) = strip.split_at_mut(encoding.numbers_start(blocks));
    let lane = column % STRIP;
    let mut groups = weights.chunks_exact_mut(GROUP_BYTES);
    let mut vectors = numbers.chunks_exact_mut(NUMBERS_BYTES);
    for block in row.chunks_exact(encoding.file_bytes()) {
        let (from_numbers, from_weights) = block.split_at(2 * encoding.numbers());
        for (from, to) in from_weights.chunks_exact(4).zip(&mut groups) {
            let to = &mut to[lane * 4..][..4];
            to.copy_from_slice(from);
            if encoding.bits == 8 {
                // Two's complement plus 128.
                to.iter_mut().for_each(|byte| *byte ^= 0x80);
            }
        }
        for (from, to) in from_numbers.chunks_exact(2).zip(&mut vectors) {
            to[2 * lane..][..2].copy_from_slice(from);
        }
    }
}
