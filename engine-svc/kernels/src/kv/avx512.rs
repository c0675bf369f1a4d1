//! Storing by AVX512-BF16, which rounds 16 elements at a time; denormals become zero.
//!
//! Contract: slices have the shapes that [`KvLayout`](super::KvLayout) gives them, which each function checks before it
//! takes pointers.

use std::arch::x86_64::*;

use half::bf16;

use super::BLOCK_TOKENS;
use crate::rounding::rounded;

/// See [`KvElement::put_key`](super::KvElement::put_key).
#[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
pub(super) fn put_key(keys: &mut [bf16], offset: usize, from: &[f32]) {
    assert!(keys.len() == from.len() * BLOCK_TOKENS && offset < BLOCK_TOKENS);
    // A pair for each token lies between two pairs of this one.
    let places = _mm512_mullo_epi32(
        _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15),
        _mm512_set1_epi32(BLOCK_TOKENS as i32),
    );
    for (index, from) in from.chunks(32).enumerate() {
        let pairs = from.len() / 2;
        let elements = ((1_u64 << from.len()) - 1) as u32;
        // SAFETY: the masks keep to the elements of the key, and to as many pairs of the block.
        unsafe {
            let first = _mm512_maskz_loadu_ps(elements as u16, from.as_ptr());
            let second = _mm512_maskz_loadu_ps((elements >> 16) as u16, from.as_ptr().wrapping_add(16));
            let rounded: __m512i = std::mem::transmute(_mm512_cvtne2ps_pbh(second, first));
            let to = keys.as_mut_ptr().add((index * 16 * BLOCK_TOKENS + offset) * 2);
            let mask = ((1_u32 << pairs) - 1) as u16;
            _mm512_mask_i32scatter_epi32::<4>(to.cast(), mask, places, rounded);
        }
    }
}

/// See [`KvElement::put_value`](super::KvElement::put_value).
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512bf16")]
pub(super) fn put_value(values: &mut [bf16], offset: usize, from: &[f32]) {
    let dim = values.len() / BLOCK_TOKENS;
    assert!(from.len() <= dim && offset < BLOCK_TOKENS);
    let pairs = &mut values[offset / 2 * dim * 2..][..dim * 2];
    for (from, pairs) in from.chunks(16).zip(pairs.chunks_mut(32)) {
        let mask = ((1_u32 << from.len()) - 1) as u16;
        // SAFETY: the mask keeps to the elements of the value, and to as many pairs.
        unsafe {
            let new = _mm512_cvtepu16_epi32(rounded(_mm512_maskz_loadu_ps(mask, from.as_ptr())));
            let old = _mm512_maskz_loadu_epi32(mask, pairs.as_ptr().cast());
            let both = if offset.is_multiple_of(2) {
                _mm512_mask_mov_epi16(old, 0x5555_5555, new)
            } else {
                _mm512_mask_mov_epi16(old, 0xaaaa_aaaa, _mm512_slli_epi32::<16>(new))
            };
            _mm512_mask_storeu_epi32(pairs.as_mut_ptr().cast(), mask, both);
        }
    }
}
