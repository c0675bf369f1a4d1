//! 8-bit and 4-bit weights with a scale per block of 32, in the encodings of GGUF (ggml's `Q8_0`,
//! `Q4_0` and `Q4_1`), reordered for the kernels.
//!
//! A panel is 48 outputs. Per block of 32 k it holds the weights as unsigned bytes or nibbles, then 48
//! scales and, for `Q4_1`, 48 minima as 16-bit floats, padded to whole cache lines:
//! * 8 bits: `[8][48][4]`, k = 4·i + j, each weight plus 128
//! * 4 bits: `[4][48][4]`, the low nibble for k = 4·i + j, the high one for 16 + 4·i + j; `Q4_0` plus 8
//!
//! A weight is `scale · (byte - offset)`, or `scale · byte + minimum`.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
pub(super) mod operand;
mod portable;
mod quantise;

use half::f16;

use super::WeightFormat;
use super::tile::{Kernel, Operand, PANEL};
use crate::buffer::Buffer;
use crate::isa::Isa;
use crate::pool::{Pool, SharedMut};

/// Weights that share a scale.
pub(super) const BLOCK: usize = 32;

/// Bytes of 48 scales or minima.
const SCALES: usize = PANEL * size_of::<f16>();

/// How a block format encodes its weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Encoding {
    pub(super) format: WeightFormat,
    /// 4 or 8.
    pub(super) bits: usize,
    /// Whether there is a minimum; if not, bytes are offset by half their range.
    pub(super) minimum: bool,
}

impl Encoding {
    /// # Panics
    /// If the format has no blocks.
    fn of(format: WeightFormat) -> Encoding {
        let (bits, minimum) = match format {
            WeightFormat::Q8_0 => (8, false),
            WeightFormat::Q4_0 => (4, false),
            WeightFormat::Q4_1 => (4, true),
            WeightFormat::F32 | WeightFormat::Bf16 => panic!("{format:?} has no blocks"),
        };
        Encoding { format, bits, minimum }
    }

    /// Bytes of the weights of one block and output.
    const fn weight_bytes(self) -> usize {
        BLOCK * self.bits / 8
    }

    /// Bytes of one block in a GGUF file.
    const fn file_bytes(self) -> usize {
        self.weight_bytes() + if self.minimum { 4 } else { 2 }
    }

    /// Bytes of one block of a panel.
    pub(super) const fn panel_bytes(self) -> usize {
        let scales = if self.minimum { 2 * SCALES } else { SCALES };
        (PANEL * self.weight_bytes() + scales).next_multiple_of(64)
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

    /// Packs rows from a source of encoded rows, one source per run of panels.
    fn build<S, R>(pool: &Pool, encoding: Encoding, n: usize, blocks: usize, source: S) -> BlockPanels
    where
        S: Fn() -> R + Sync,
        R: FnMut(usize, &mut [u8]),
    {
        let panel_bytes = blocks * encoding.panel_bytes();
        let mut data = Buffer::<u8>::zeroed(n.div_ceil(PANEL) * panel_bytes);
        let out = SharedMut::new(&mut data);
        pool.share(n.div_ceil(PANEL), 1, |range| {
            let mut read = source();
            let mut row = vec![0; blocks * encoding.file_bytes()];
            for panel in range {
                // SAFETY: each panel is handed to one thread only.
                let out = unsafe { out.slice(panel * panel_bytes, panel_bytes) };
                let first = panel * PANEL;
                for column in 0..PANEL.min(n - first) {
                    read(first + column, &mut row);
                    place(encoding, &row, column, out);
                }
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
        (self.data.as_ptr(), self.blocks * self.encoding.panel_bytes())
    }

    /// Bytes of all panels.
    pub(super) fn bytes(&self) -> usize {
        self.data.len()
    }

    /// The kernel for these weights.
    pub(super) fn kernel(&self, isa: Isa) -> Kernel {
        let (max_rows, compute): (_, [unsafe fn(&_); 3]) = match isa {
            Isa::Portable => (1, [portable::q8_0_tile, portable::q4_0_tile, portable::q4_1_tile]),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => (4, [avx2::q8_0_tile, avx2::q4_0_tile, avx2::q4_1_tile]),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 | Isa::Avx512Bf16 => {
                (avx512::MAX_ROWS, [avx512::q8_0_tile, avx512::q4_0_tile, avx512::q4_1_tile])
            }
        };
        let compute = match (self.encoding.bits, self.encoding.minimum) {
            (8, _) => compute[0],
            (_, false) => compute[1],
            (_, true) => compute[2],
        };
        Kernel { max_rows, operand: Operand::Blocks, compute }
    }

    /// Reads back row `index` as floats; `out` may be shorter than the padded row.
    pub(super) fn unpack_row(&self, index: usize, out: &mut [f32]) {
        let encoding = self.encoding;
        let (_, panel_bytes) = self.raw();
        let panel = &self.data[index / PANEL * panel_bytes..][..panel_bytes];
        let blocks = panel.chunks_exact(encoding.panel_bytes());
        for (block, out) in blocks.zip(out.chunks_mut(BLOCK)) {
            let column = Column { encoding, block, column: index % PANEL };
            let (scale, minimum) = column.scales();
            for (k, out) in out.iter_mut().enumerate() {
                *out = scale * f32::from(column.byte(k)) + minimum;
            }
        }
    }
}

/// One output's part of one block of a panel.
#[derive(Clone, Copy)]
pub(super) struct Column<'a> {
    pub(super) encoding: Encoding,
    pub(super) block: &'a [u8],
    pub(super) column: usize,
}

impl Column<'_> {
    /// The stored weight of the k-th of the block.
    pub(super) fn byte(self, k: usize) -> u8 {
        let at = |k: usize| self.block[(k / 4 * PANEL + self.column) * 4 + k % 4];
        match self.encoding.bits {
            8 => at(k),
            _ if k < 16 => at(k) & 15,
            _ => at(k - 16) >> 4,
        }
    }

    /// Scale and what to add, such that a weight is `scale · byte + added`.
    pub(super) fn scales(self) -> (f32, f32) {
        let number = |index: usize| {
            let at = PANEL * self.encoding.weight_bytes() + index * SCALES + 2 * self.column;
            f16::from_le_bytes([self.block[at], self.block[at + 1]]).to_f32()
        };
        let scale = number(0);
        let offset = (1 << (self.encoding.bits - 1)) as f32;
        (scale, if self.encoding.minimum { number(1) } else { -offset * scale })
    }
}

/// Writes an encoded row into column `column` of a panel.
fn place(encoding: Encoding, row: &[u8], column: usize, panel: &mut [u8]) {
    let scales = encoding.file_bytes() - encoding.weight_bytes();
    let blocks = row.chunks_exact(encoding.file_bytes());
    for (from, to) in blocks.zip(panel.chunks_exact_mut(encoding.panel_bytes())) {
        let (numbers, weights) = from.split_at(scales);
        for (group, from) in weights.chunks_exact(4).enumerate() {
            let to = &mut to[(group * PANEL + column) * 4..][..4];
            to.copy_from_slice(from);
            if encoding.bits == 8 {
                // Two's complement plus 128.
                to.iter_mut().for_each(|byte| *byte ^= 0x80);
            }
        }
        for (index, number) in numbers.chunks_exact(2).enumerate() {
            let at = PANEL * encoding.weight_bytes() + index * SCALES + 2 * column;
            to[at..at + 2].copy_from_slice(number);
        }
    }
}
