//! Hints to bring memory into the caches.

/// Asks for the cache line at `address`, which may be any address at all, in the second-level cache.
#[inline(always)]
pub(crate) fn line(address: *const u8) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};
        // SAFETY: a prefetch does not access memory, and SSE is part of x86-64.
        unsafe { _mm_prefetch::<_MM_HINT_T1>(address.cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}

/// Asks for the cache line at `address`, any at all, for this core alone: it will be written.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub(crate) fn line_to_write(address: *const u8) {
    // SAFETY: a prefetch does not access memory; processors without this one do nothing instead.
    unsafe {
        std::arch::asm!("prefetchw [{}]", in(reg) address, options(nostack, preserves_flags, readonly))
    };
}

/// Asks for all of a slice.
#[inline]
pub(crate) fn slice<T>(data: &[T]) {
    let start = data.as_ptr().cast::<u8>();
    for offset in (0..size_of_val(data)).step_by(64) {
        line(start.wrapping_add(offset));
    }
}
