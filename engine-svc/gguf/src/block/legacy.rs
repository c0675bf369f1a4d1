//! Formats of 32 values per block. In the 4-bit ones byte `i` holds value `i` in its lower half and value
//! `i + 16` in its upper half.

use super::half_at;

pub(super) const VALUES: usize = 32;
pub(super) const Q4_0_BYTES: usize = 2 + 16;
pub(super) const Q4_1_BYTES: usize = 2 + 2 + 16;
pub(super) const Q8_0_BYTES: usize = 2 + 32;

pub(super) fn q4_0(blocks: &[u8], values: &mut [f32]) {
    for (block, values) in blocks_of::<Q4_0_BYTES>(blocks, values) {
        let d = half_at(block, 0);
        for (i, &pair) in block[2..].iter().enumerate() {
            values[i] = d * (f32::from(pair & 15) - 8.0);
            values[i + 16] = d * (f32::from(pair >> 4) - 8.0);
        }
    }
}

pub(super) fn q4_1(blocks: &[u8], values: &mut [f32]) {
    for (block, values) in blocks_of::<Q4_1_BYTES>(blocks, values) {
        let (d, m) = (half_at(block, 0), half_at(block, 2));
        for (i, &pair) in block[4..].iter().enumerate() {
            values[i] = d * f32::from(pair & 15) + m;
            values[i + 16] = d * f32::from(pair >> 4) + m;
        }
    }
}

pub(super) fn q8_0(blocks: &[u8], values: &mut [f32]) {
    for (block, values) in blocks_of::<Q8_0_BYTES>(blocks, values) {
        let d = half_at(block, 0);
        for (value, &q) in values.iter_mut().zip(&block[2..]) {
            *value = d * f32::from(q.cast_signed());
        }
    }
}

fn blocks_of<'a, const BYTES: usize>(
    blocks: &'a [u8],
    values: &'a mut [f32],
) -> impl Iterator<Item = (&'a [u8; BYTES], &'a mut [f32; VALUES])> {
    blocks.as_chunks().0.iter().zip(values.as_chunks_mut().0)
}
