//! The K formats: 256 values per block, in groups with small scales of their own.

use super::half_at;

pub(super) const VALUES: usize = 256;
pub(super) const Q4_BYTES: usize = 2 + 2 + PACKED_SCALES + 128;
pub(super) const Q5_BYTES: usize = 2 + 2 + PACKED_SCALES + 32 + 128;
pub(super) const Q6_BYTES: usize = 128 + 64 + 16 + 2;

/// Eight scales and eight minima of 6 bits each.
const PACKED_SCALES: usize = 12;

/// `d, dmin, scales, quarters`: byte `i` of quarter `g` holds values `64g + i` and `64g + 32 + i`.
pub(super) fn q4(blocks: &[u8], values: &mut [f32]) {
    for (block, values) in blocks_of::<Q4_BYTES>(blocks, values) {
        let scales = Scales::of(block);
        let quarters = block[4 + PACKED_SCALES..].chunks_exact(32);
        for (g, (quarter, values)) in quarters.zip(values.chunks_exact_mut(64)).enumerate() {
            let ((d0, m0), (d1, m1)) = (scales.group(2 * g), scales.group(2 * g + 1));
            for (i, &pair) in quarter.iter().enumerate() {
                values[i] = d0 * f32::from(pair & 15) - m0;
                values[i + 32] = d1 * f32::from(pair >> 4) - m1;
            }
        }
    }
}

/// `d, dmin, scales, high, quarters`: as Q4, with bit `2g` and `2g + 1` of `high[i]` as the fifth bits.
pub(super) fn q5(blocks: &[u8], values: &mut [f32]) {
    for (block, values) in blocks_of::<Q5_BYTES>(blocks, values) {
        let scales = Scales::of(block);
        let (high, quarters) = block[4 + PACKED_SCALES..].split_at(32);
        let quarters = quarters.chunks_exact(32);
        for (g, (quarter, values)) in quarters.zip(values.chunks_exact_mut(64)).enumerate() {
            let ((d0, m0), (d1, m1)) = (scales.group(2 * g), scales.group(2 * g + 1));
            for (i, (&pair, &high)) in quarter.iter().zip(high).enumerate() {
                let bits = high >> (2 * g);
                values[i] = d0 * f32::from(pair & 15 | (bits & 1) << 4) - m0;
                values[i + 32] = d1 * f32::from(pair >> 4 | (bits >> 1 & 1) << 4) - m1;
            }
        }
    }
}

/// `low, high, scales, d`: each half of 128 values has 64 bytes of low and 32 of high bits; byte `i` of the high
/// ones belongs to values `i`, `i + 32`, `i + 64`, `i + 96`.
pub(super) fn q6(blocks: &[u8], values: &mut [f32]) {
    for (block, values) in blocks_of::<Q6_BYTES>(blocks, values) {
        let (low, rest) = block.split_at(128);
        let (high, rest) = rest.split_at(64);
        let (scales, d) = rest.split_at(16);
        let d = half_at(d, 0);
        for (half, values) in values.chunks_exact_mut(128).enumerate() {
            let (low, high) = (&low[64 * half..][..64], &high[32 * half..][..32]);
            let scale = |group: usize| d * f32::from(scales[8 * half + group].cast_signed());
            for i in 0..32 {
                let parts = [low[i] & 15, low[i + 32] & 15, low[i] >> 4, low[i + 32] >> 4];
                for (part, bits) in parts.into_iter().enumerate() {
                    let q = bits | (high[i] >> (2 * part) & 3) << 4;
                    values[32 * part + i] = scale(2 * part + i / 16) * (f32::from(q) - 32.0);
                }
            }
        }
    }
}

/// The start of a Q4 or Q5 block.
struct Scales<'a> {
    d: f32,
    dmin: f32,
    packed: &'a [u8],
}

impl<'a> Scales<'a> {
    fn of(block: &'a [u8]) -> Self {
        let packed = &block[4..4 + PACKED_SCALES];
        Self { d: half_at(block, 0), dmin: half_at(block, 2), packed }
    }

    /// Scale and minimum of a group of 32. The first four of each lie in the lower 6 bits of bytes 0..8; the others
    /// in the halves of bytes 8..12, their top two bits above the first four.
    fn group(&self, group: usize) -> (f32, f32) {
        let p = self.packed;
        let (scale, min) = if group < 4 {
            (p[group] & 63, p[group + 4] & 63)
        } else {
            let low = p[group + 4];
            (low & 15 | p[group - 4] >> 6 << 4, low >> 4 | p[group] >> 6 << 4)
        };
        (self.d * f32::from(scale), self.dmin * f32::from(min))
    }
}

fn blocks_of<'a, const BYTES: usize>(
    blocks: &'a [u8],
    values: &'a mut [f32],
) -> impl Iterator<Item = (&'a [u8; BYTES], &'a mut [f32; VALUES])> {
    blocks.as_chunks().0.iter().zip(values.as_chunks_mut().0)
}
