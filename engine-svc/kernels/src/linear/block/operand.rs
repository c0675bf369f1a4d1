//! Activations quantised to 8 bits with a scale per block of 32.
//!
//! A row is a sequence of records, one per block, 16-byte aligned: 32 signed bytes, the scale and the
//! scale times the sum of the bytes as `f32`, then minus 8 times and minus 128 times that sum as `i32`.

use super::BLOCK;
use crate::disjoint::SharedMut;
use crate::isa::vectorised;
use crate::math::{LANES, larger, reduce};
use crate::pool::Pool;

/// Bytes of one record.
pub(super) const RECORD: usize = BLOCK + 16;
/// Where in a record the numbers lie.
pub(super) const SCALE: usize = BLOCK;
pub(super) const SCALED_SUM: usize = BLOCK + 4;
pub(super) const MINUS_8_SUMS: usize = BLOCK + 8;
pub(super) const MINUS_128_SUMS: usize = BLOCK + 12;

/// Bytes of a row of `k` activations.
pub(in crate::linear) fn row_bytes(k: usize) -> usize {
    k.div_ceil(BLOCK) * RECORD
}

/// Quantises rows of `k` activations.
pub(in crate::linear) fn quantise_rows(pool: &Pool, x: &[f32], k: usize, out: &mut [u8]) {
    let (isa, stride, out) = (pool.isa(), row_bytes(k), SharedMut::new(out));
    pool.split(x.len() / k, k, |range| {
        for index in range {
            // SAFETY: `split` gives each row to one thread only.
            quantise_row(isa, &x[index * k..][..k], unsafe { out.slice(index * stride, stride) });
        }
    });
}

vectorised! {
    fn quantise_row(row: &[f32], out: &mut [u8]) {
        let (whole, rest) = row.as_chunks::<BLOCK>();
        let (records, _) = out.as_chunks_mut::<RECORD>();
        for (from, to) in whole.iter().zip(&mut *records) {
            quantise_block(from, to);
        }
        if !rest.is_empty() {
            let mut last = [0.0; BLOCK];
            last[..rest.len()].copy_from_slice(rest);
            quantise_block(&last, &mut records[whole.len()]);
        }
    }
}

#[inline(always)]
fn quantise_block(from: &[f32; BLOCK], to: &mut [u8; RECORD]) {
    /// Adding this to a small float leaves its nearest integer in the low bits.
    const ROUND: f32 = 12_582_912.0;
    let mut largest = [0.0f32; LANES];
    let mut zero = [0.0f32; LANES];
    for half in from.as_chunks::<LANES>().0 {
        for lane in 0..LANES {
            largest[lane] = larger(largest[lane], half[lane].abs());
            // NaN where an element is not finite, which the maximum would hide.
            zero[lane] += half[lane] * 0.0;
        }
    }
    let largest = reduce(largest, larger);
    let zero = reduce(zero, |a, b| a + b);
    let scale = largest / 127.0;
    let inverse = if scale > f32::MIN_POSITIVE { 1.0 / scale } else { 0.0 };
    let mut sum = 0;
    for (from, to) in from.iter().zip(&mut to[..BLOCK]) {
        let code = (from * inverse + ROUND).to_bits() as i8;
        *to = code as u8;
        sum += i32::from(code);
    }
    let scale = scale + zero;
    to[SCALE..SCALE + 4].copy_from_slice(&scale.to_ne_bytes());
    to[SCALED_SUM..SCALED_SUM + 4].copy_from_slice(&(scale * sum as f32).to_ne_bytes());
    to[MINUS_8_SUMS..MINUS_8_SUMS + 4].copy_from_slice(&(-8 * sum).to_ne_bytes());
    to[MINUS_128_SUMS..].copy_from_slice(&(-128 * sum).to_ne_bytes());
}
