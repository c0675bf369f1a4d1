//! Activations quantised to 8 bits with a scale per block of 32.
//!
//! A row is a sequence of records, one per block, 16-byte aligned: 32 signed bytes, the scale and the
//! scale times the sum of the bytes as `f32`, then minus 8 times and minus 128 times that sum as `i32`.

use super::BLOCK;
#[cfg(target_arch = "x86_64")]
use super::avx512;
use crate::disjoint::SharedMut;
use crate::isa::{Isa, vectorised};
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

/// Quantises one row of activations.
fn quantise_row(isa: Isa, row: &[f32], out: &mut [u8]) {
    #[cfg(target_arch = "x86_64")]
    if isa >= Isa::Avx512 {
        // SAFETY: an `Isa` in a pool was checked to be available.
        unsafe { avx512::quantise_row(row, out) };
        return;
    }
    quantise_row_portable(isa, row, out);
}

vectorised! {
    fn quantise_row_portable(row: &[f32], out: &mut [u8]) {
        by_blocks(row, out, quantise_block);
    }
}

/// Calls `quantise` for each block and its record, the last block filled up with zeros.
#[inline(always)]
pub(super) fn by_blocks(row: &[f32], out: &mut [u8], quantise: impl Fn(&[f32; BLOCK], &mut [u8; RECORD])) {
    let (whole, rest) = row.as_chunks::<BLOCK>();
    let (records, _) = out.as_chunks_mut::<RECORD>();
    for (from, to) in whole.iter().zip(&mut *records) {
        quantise(from, to);
    }
    if !rest.is_empty() {
        let mut last = [0.0; BLOCK];
        last[..rest.len()].copy_from_slice(rest);
        quantise(&last, &mut records[whole.len()]);
    }
}

/// The inverse of a scale; none for what is too small to divide by.
#[inline(always)]
pub(super) fn inverse(scale: f32) -> f32 {
    if scale > f32::MIN_POSITIVE { 1.0 / scale } else { 0.0 }
}

/// Writes the numbers that follow a record's bytes.
#[inline(always)]
pub(super) fn put_numbers(to: &mut [u8; RECORD], scale: f32, sum: i32) {
    to[SCALE..SCALE + 4].copy_from_slice(&scale.to_ne_bytes());
    to[SCALED_SUM..SCALED_SUM + 4].copy_from_slice(&(scale * sum as f32).to_ne_bytes());
    to[MINUS_8_SUMS..MINUS_8_SUMS + 4].copy_from_slice(&sum.wrapping_mul(-8).to_ne_bytes());
    to[MINUS_128_SUMS..].copy_from_slice(&sum.wrapping_mul(-128).to_ne_bytes());
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
    let inverse = inverse(scale);
    let mut sum = 0;
    for (from, to) in from.iter().zip(&mut to[..BLOCK]) {
        let code = (from * inverse + ROUND).to_bits() as i8;
        *to = code as u8;
        sum += i32::from(code);
    }
    put_numbers(to, scale + zero, sum);
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::*;

    #[test]
    fn every_instruction_set_quantises_to_the_same_bytes() {
        let mut row: Vec<f32> = (0..200).map(|i| ((i * 37 % 101) as f32 - 50.0) * 0.013).collect();
        row[64..96].fill(0.0);
        row[100] = 1e-40;
        row[130] = 1e30;
        let quantised = |isa: Isa| {
            let mut out = vec![0xee; row_bytes(row.len())];
            quantise_row(isa, &row, &mut out);
            out
        };
        let want = quantised(Isa::Portable);
        for &isa in Isa::ALL.iter().filter(|isa| isa.is_available()) {
            assert_eq!(quantised(isa), want, "{isa}");
        }
    }
}
