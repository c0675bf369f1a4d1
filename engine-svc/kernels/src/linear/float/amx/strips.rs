//! Two strips of weights against up to 32 rows, whose operands are read with a hint that they need not stay.
//!
//! Two tiles across, one for each strip, and one or two down are accumulators.
//!
//! Contract: see [`StripPair`]; strips and operands lie as [`amx`](super) says, and the thread holds
//! [`Tiles`](crate::amx::Tiles).

use std::arch::x86_64::*;

use super::meanwhile::Meanwhile;
use super::{ROW_BYTES, ROWS, TILE_BYTES, TILE_K, WEIGHT_STRIDE};
use crate::amx;
use crate::linear::strips::{STRIP, Strip, StripPair};

/// From the sums of one row to the next.
const SUMS_STRIDE: usize = 2 * ROW_BYTES;

/// From the sums of one tile to those of the tile below.
const BELOW: usize = ROWS * SUMS_STRIDE;

/// bf16 weights and operands, up to 32 rows.
///
/// # Safety
/// As [`StripPair`] says, on a machine with AMX, by a thread that holds its tiles.
pub(in crate::linear::float) unsafe fn bf16_strips(pair: &StripPair) {
    // SAFETY: passed on.
    unsafe {
        match pair.rows {
            ..=ROWS => one_group(pair),
            _ => two_groups(pair),
        }
    }
}

/// # Safety
/// As [`bf16_strips`].
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512bf16")]
unsafe fn one_group(pair: &StripPair) {
    let sums = pair.sums.cast::<u8>();
    let (mut x, [mut left, mut right]) = (pair.x, pair.strips.each_ref().map(|strip| strip.w));
    let mut meanwhile = Meanwhile::of(pair);
    // SAFETY: strips and operand have ⌈k / 32⌉ tiles, the sums 16 rows; the rest is the caller's promise.
    unsafe {
        if pair.begins {
            amx::zero::<0>();
            amx::zero::<1>();
        } else {
            amx::load_once::<0>(sums, SUMS_STRIDE);
            amx::load_once::<1>(sums.add(ROW_BYTES), SUMS_STRIDE);
        }
        for _ in 0..pair.k.div_ceil(TILE_K) {
            meanwhile.turn();
            amx::load_once::<4>(x, ROW_BYTES);
            amx::load::<6>(left, WEIGHT_STRIDE);
            amx::multiply::<0, 4, 6>();
            amx::load::<7>(right, WEIGHT_STRIDE);
            amx::multiply::<1, 4, 7>();
            x = x.add(TILE_BYTES);
            left = left.add(ROWS * WEIGHT_STRIDE);
            right = right.add(ROWS * WEIGHT_STRIDE);
        }
        meanwhile.end();
        amx::store::<0>(sums, SUMS_STRIDE);
        amx::store::<1>(sums.add(ROW_BYTES), SUMS_STRIDE);
        finish(pair);
    }
}

/// # Safety
/// As [`bf16_strips`].
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512bf16")]
unsafe fn two_groups(pair: &StripPair) {
    let sums = pair.sums.cast::<u8>();
    let (mut x, [mut left, mut right]) = (pair.x, pair.strips.each_ref().map(|strip| strip.w));
    let group_bytes = ROWS * pair.x_stride;
    let mut meanwhile = Meanwhile::of(pair);
    // SAFETY: as above, and the sums have 32 rows.
    unsafe {
        if pair.begins {
            amx::zero::<0>();
            amx::zero::<1>();
            amx::zero::<2>();
            amx::zero::<3>();
        } else {
            amx::load_once::<0>(sums, SUMS_STRIDE);
            amx::load_once::<1>(sums.add(ROW_BYTES), SUMS_STRIDE);
            amx::load_once::<2>(sums.add(BELOW), SUMS_STRIDE);
            amx::load_once::<3>(sums.add(BELOW + ROW_BYTES), SUMS_STRIDE);
        }
        for _ in 0..pair.k.div_ceil(TILE_K) {
            meanwhile.turn();
            amx::load_once::<4>(x, ROW_BYTES);
            amx::load::<6>(left, WEIGHT_STRIDE);
            amx::multiply::<0, 4, 6>();
            amx::load::<7>(right, WEIGHT_STRIDE);
            amx::multiply::<1, 4, 7>();
            amx::load_once::<5>(x.add(group_bytes), ROW_BYTES);
            amx::multiply::<2, 5, 6>();
            amx::multiply::<3, 5, 7>();
            x = x.add(TILE_BYTES);
            left = left.add(ROWS * WEIGHT_STRIDE);
            right = right.add(ROWS * WEIGHT_STRIDE);
        }
        meanwhile.end();
        if let Some([left, right]) = in_place(pair) {
            let stride = pair.y_stride * size_of::<f32>();
            amx::store::<0>(left, stride);
            amx::store::<1>(right, stride);
            amx::store::<2>(left.add(ROWS * stride), stride);
            amx::store::<3>(right.add(ROWS * stride), stride);
            return;
        }
        amx::store::<0>(sums, SUMS_STRIDE);
        amx::store::<1>(sums.add(ROW_BYTES), SUMS_STRIDE);
        amx::store::<2>(sums.add(BELOW), SUMS_STRIDE);
        amx::store::<3>(sums.add(BELOW + ROW_BYTES), SUMS_STRIDE);
        finish(pair);
    }
}

/// Where four whole tiles of outputs can be stored as they are.
fn in_place(pair: &StripPair) -> Option<[*mut u8; 2]> {
    let is_plain = pair.ends && !pair.add && pair.rows == 2 * ROWS;
    // A tile whose rows straddle cache lines is slow to store.
    let is_aligned = |strip: &Strip| {
        strip.columns == STRIP && strip.bias.is_null() && strip.y.addr().is_multiple_of(ROW_BYTES)
    };
    let is_even = (pair.y_stride * size_of::<f32>()).is_multiple_of(ROW_BYTES);
    (is_plain && is_even && pair.strips.iter().all(is_aligned))
        .then(|| pair.strips.each_ref().map(|strip| strip.y.cast()))
}

/// Writes the outputs from the sums, if those have all of k.
///
/// # Safety
/// As [`bf16_strips`], and the sums must be there.
#[target_feature(enable = "avx512f")]
unsafe fn finish(pair: &StripPair) {
    if !pair.ends {
        return;
    }
    for (which, strip) in pair.strips.iter().enumerate() {
        let mask = ((1_u32 << strip.columns) - 1) as u16;
        // SAFETY: a bias has an element for each column; the mask keeps to the strip's columns.
        unsafe {
            let has_bias = if strip.bias.is_null() { 0 } else { mask };
            let bias = _mm512_maskz_loadu_ps(has_bias, strip.bias);
            for row in 0..pair.rows {
                let y = strip.y.wrapping_add(row * pair.y_stride);
                let mut value = _mm512_load_ps(pair.sums.add((2 * row + which) * STRIP));
                if has_bias != 0 {
                    value = _mm512_add_ps(value, bias);
                }
                if pair.add {
                    value = _mm512_add_ps(_mm512_maskz_loadu_ps(mask, y), value);
                }
                _mm512_mask_storeu_ps(y, mask, value);
            }
        }
    }
}
