//! Floats to blocks, encoded as in a GGUF file: scale (and minimum) first, then 32 weights.

use half::f16;

use super::{BLOCK, Encoding};

/// Encodes a row of whole blocks.
pub(super) fn row(encoding: Encoding, row: &[f32], out: &mut [u8]) {
    for (from, to) in row.as_chunks::<BLOCK>().0.iter().zip(out.chunks_exact_mut(encoding.file_bytes())) {
        match (encoding.bits, encoding.minimum) {
            (8, _) => q8_0(from, to),
            (_, false) => q4_0(from, to),
            (_, true) => q4_1(from, to),
        }
    }
}

fn q8_0(from: &[f32; BLOCK], to: &mut [u8]) {
    let largest = from.iter().fold(0.0f32, |max, x| max.max(x.abs()));
    let scale = put(to, 0, largest / 127.0);
    for (x, to) in from.iter().zip(&mut to[2..]) {
        *to = nearest(*x, scale).clamp(-127.0, 127.0) as i8 as u8;
    }
}

/// The element of largest magnitude becomes -8 or 8 - 1: the sign of the scale is free.
fn q4_0(from: &[f32; BLOCK], to: &mut [u8]) {
    let extreme = from.iter().fold(0.0f32, |max, x| if x.abs() > max.abs() { *x } else { max });
    let scale = put(to, 0, extreme / -8.0);
    let code = |x: f32| (nearest(x, scale) + 8.0).clamp(0.0, 15.0) as u8;
    for i in 0..BLOCK / 2 {
        to[2 + i] = code(from[i]) | code(from[i + BLOCK / 2]) << 4;
    }
}

/// The range from minimum to maximum in 15 steps, or a slightly narrower one where that fits better.
fn q4_1(from: &[f32; BLOCK], to: &mut [u8]) {
    let min = from.iter().copied().fold(f32::INFINITY, f32::min);
    let max = from.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let mut best = (f32::INFINITY, 0.0, 0.0);
    for (low, high) in SHRINKS {
        let range = max - min;
        let (from_min, to_max) = (min + range * low, max - range * high);
        let scale = f16::from_f32((to_max - from_min) / 15.0).to_f32();
        let minimum = f16::from_f32(from_min).to_f32();
        let error: f32 = from
            .iter()
            .map(|x| {
                let code = nearest(x - minimum, scale).clamp(0.0, 15.0);
                (scale * code + minimum - x).powi(2)
            })
            .sum();
        if error < best.0 {
            best = (error, scale, minimum);
        }
    }
    let scale = put(to, 0, best.1);
    let minimum = put(to, 1, best.2);
    let code = |x: f32| nearest(x - minimum, scale).clamp(0.0, 15.0) as u8;
    for i in 0..BLOCK / 2 {
        to[4 + i] = code(from[i]) | code(from[i + BLOCK / 2]) << 4;
    }
}

/// Parts of the range to give up at either end: clipping one outlier can make all others finer.
const SHRINKS: [(f32, f32); 9] = [
    (0.0, 0.0),
    (0.03, 0.03),
    (0.06, 0.06),
    (0.03, 0.0),
    (0.0, 0.03),
    (0.08, 0.0),
    (0.0, 0.08),
    (0.12, 0.0),
    (0.0, 0.12),
];

/// Stores a 16-bit float and returns it as stored.
fn put(to: &mut [u8], index: usize, value: f32) -> f32 {
    let stored = f16::from_f32(value);
    to[2 * index..2 * index + 2].copy_from_slice(&stored.to_le_bytes());
    stored.to_f32()
}

fn nearest(x: f32, scale: f32) -> f32 {
    if scale == 0.0 { 0.0 } else { (x / scale).round_ties_even() }
}
