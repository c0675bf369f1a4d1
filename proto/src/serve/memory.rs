//! The allocator of both services: spans, messages and requests are many small allocations that end on other threads
//! than they began on. What is freed stays with the process for a while: batches of spans, pages of metrics and bursts
//! of requests come again within seconds, and to get fresh pages from the kernel for them costs more than making them.
//!
//! `unsafe`: `mi_option_set` writes a table that the allocator reads without a lock, so it may be called only while no
//! other thread exists ([`keep_freed`] says so). An option is an index into that table; which one is the delay is known
//! for the version that the workspace pins, and a test reads its default back.
#![allow(unsafe_code)]

use std::time::Duration;

use libmimalloc_sys::{mi_option_set, mi_option_t};
pub use mimalloc::MiMalloc;

/// `mi_option_purge_delay`: how long freed pages are kept, ms.
const PURGE_DELAY: mi_option_t = 15;
/// Longer than from one scrape to the next.
const KEPT: Duration = Duration::from_secs(20);

/// Makes [`MiMalloc`] keep freed pages for some seconds. To be called first, while no other thread exists.
pub fn keep_freed() {
    // SAFETY: the caller is alone, and the index is one of the table's.
    unsafe { mi_option_set(PURGE_DELAY, KEPT.as_millis() as i64) };
}

#[cfg(test)]
mod tests {
    use libmimalloc_sys::mi_option_get;

    use super::*;

    #[test]
    fn the_option_is_the_delay_of_purges() {
        // SAFETY: nothing in this test program allocates with it, and the index is one of the table's.
        let delay = || unsafe { mi_option_get(PURGE_DELAY) };
        assert_eq!(delay(), 1000, "its default, which no other option has");
        keep_freed();
        assert_eq!(delay(), 20_000);
    }
}
