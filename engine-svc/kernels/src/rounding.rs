//! Rounding to bf16 by AVX512-BF16, 16 elements at a time.

use std::arch::x86_64::*;

use half::bf16;

/// The nearest bf16 of each; denormals become zero.
#[inline]
#[target_feature(enable = "avx512f,avx512bf16")]
pub(crate) fn rounded(values: __m512) -> __m256i {
    // SAFETY: plain data of one size.
    unsafe { std::mem::transmute(_mm512_cvtneps_pbh(values)) }
}

/// Rounds a vector to the nearest bf16; denormals become zero.
///
/// # Safety
/// The machine must have AVX512-BF16, and `to` be 16 elements to write, aligned or not.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512bf16")]
pub(crate) unsafe fn round_vector(from: &[f32; 16], to: *mut bf16) {
    // SAFETY: the caller's promise.
    unsafe { store_rounded(_mm512_loadu_ps(from.as_ptr()), to) };
}

/// As [`round_vector`], of a vector in a register.
///
/// # Safety
/// As [`round_vector`].
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512bf16")]
pub(crate) unsafe fn store_rounded(values: __m512, to: *mut bf16) {
    // SAFETY: the caller's promise.
    unsafe { _mm256_storeu_si256(to.cast(), rounded(values)) };
}

/// Rounds to the nearest bf16; denormals become zero.
///
/// # Safety
/// The machine must have AVX512-BF16.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512bf16")]
pub(crate) unsafe fn round_to_bf16(from: &[f32], to: &mut [bf16]) {
    assert_eq!(from.len(), to.len());
    let mut done = 0;
    while done < from.len() {
        let lanes = (from.len() - done).min(16);
        let mask = (0xffff_u32 >> (16 - lanes)) as u16;
        // SAFETY: the mask keeps to the `lanes` elements left in both slices.
        unsafe {
            let values = _mm512_maskz_loadu_ps(mask, from.as_ptr().add(done));
            _mm256_mask_storeu_epi16(to.as_mut_ptr().add(done).cast(), mask, rounded(values));
        }
        done += lanes;
    }
}
