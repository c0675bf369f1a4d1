//! Owned, zeroed, aligned memory for weights, KV and scratch.
//!
//! Contract of the `unsafe` here: a buffer owns exactly one allocation, from `std::alloc` or from
//! `mmap`, holding `len` initialised elements of a `Pod` type from `ptr` on.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

use bytemuck::Pod;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

const CACHE_LINE: usize = 64;
const HUGE_PAGE: usize = 2 << 20;

/// A fixed-length array aligned to a cache line, or, from 2 MiB on, to a huge page. Large ones cost
/// memory only where they are written, and ask the kernel for huge pages.
#[derive(Debug)]
pub struct Buffer<T: Pod> {
    ptr: NonNull<T>,
    len: usize,
    backing: Backing,
}

#[derive(Debug)]
enum Backing {
    Empty,
    Heap(Layout),
    Mapping {
        base: *mut std::ffi::c_void,
        bytes: usize,
    },
}

// SAFETY: a buffer owns its memory alone, like a Vec, and its elements are plain data.
unsafe impl<T: Pod + Send> Send for Buffer<T> {}
// SAFETY: as above; shared access only reads.
unsafe impl<T: Pod + Sync> Sync for Buffer<T> {}

impl<T: Pod> Buffer<T> {
    /// `len` zeros. Aborts when memory runs out, as `Vec` does.
    pub fn zeroed(len: usize) -> Buffer<T> {
        const { assert!(align_of::<T>() <= CACHE_LINE) };
        let Ok(layout) = Layout::array::<T>(len).and_then(|l| l.align_to(CACHE_LINE)) else {
            panic!("a buffer of {len} elements exceeds the address space");
        };
        if layout.size() == 0 {
            let ptr = NonNull::<Line>::dangling().cast();
            return Buffer {
                ptr,
                len,
                backing: Backing::Empty,
            };
        }
        if layout.size() >= HUGE_PAGE {
            return Buffer::mapped(len, layout);
        }
        // SAFETY: the layout's size is not zero.
        let raw = unsafe { alloc_zeroed(layout) };
        let Some(ptr) = NonNull::new(raw.cast()) else {
            handle_alloc_error(layout)
        };
        Buffer {
            ptr,
            len,
            backing: Backing::Heap(layout),
        }
    }

    fn mapped(len: usize, layout: Layout) -> Buffer<T> {
        let used = layout.size().next_multiple_of(HUGE_PAGE);
        let bytes = used + HUGE_PAGE;
        // SAFETY: a fresh private mapping at an address the system picks overlaps nothing.
        let mapping = unsafe {
            mmap_anonymous(
                std::ptr::null_mut(),
                bytes,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE | MapFlags::NORESERVE,
            )
        };
        let Ok(base) = mapping else {
            handle_alloc_error(layout)
        };
        // SAFETY: base + skip + used stays within the mapping of used + HUGE_PAGE bytes.
        let start = unsafe { base.byte_add(base.addr().wrapping_neg() % HUGE_PAGE) };
        // Only a hint: a kernel without transparent huge pages refuses it and all still works.
        // SAFETY: the range is inside the mapping, and the advice does not change its contents.
        let _ = unsafe { madvise(start, used, Advice::LinuxHugepage) };
        let Some(ptr) = NonNull::new(start.cast()) else {
            handle_alloc_error(layout)
        };
        Buffer {
            ptr,
            len,
            backing: Backing::Mapping { base, bytes },
        }
    }

    /// Makes room for at least `len` elements; the contents are lost (zeroed) if it grows.
    pub fn reserve_zeroed(&mut self, len: usize) {
        if self.len < len {
            *self = Buffer::zeroed(len.next_power_of_two());
        }
    }
}

#[repr(align(64))]
struct Line;

impl<T: Pod> Drop for Buffer<T> {
    fn drop(&mut self) {
        match self.backing {
            Backing::Empty => {}
            // SAFETY: allocated in `zeroed` with this layout.
            Backing::Heap(layout) => unsafe { dealloc(self.ptr.as_ptr().cast(), layout) },
            Backing::Mapping { base, bytes } => {
                // SAFETY: mapped in `mapped` with this base and size, and nothing borrows it any more.
                let _ = unsafe { munmap(base, bytes) };
            }
        }
    }
}

impl<T: Pod> Deref for Buffer<T> {
    type Target = [T];
    fn deref(&self) -> &[T] {
        // SAFETY: see the contract at the top.
        unsafe { std::slice::from_raw_parts(self.ptr.as_ptr(), self.len) }
    }
}

impl<T: Pod> DerefMut for Buffer<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: see the contract at the top; `&mut self` is exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.ptr.as_ptr(), self.len) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_size_is_zeroed_aligned_and_writable() {
        for len in [
            0,
            1,
            63,
            4096,
            HUGE_PAGE / 4,
            HUGE_PAGE / 4 + 1,
            HUGE_PAGE * 2 + 3,
        ] {
            let mut buffer = Buffer::<f32>::zeroed(len);
            assert_eq!(buffer.len(), len);
            assert!(buffer.iter().all(|&x| x == 0.0));
            let align = if len * 4 >= HUGE_PAGE {
                HUGE_PAGE
            } else {
                CACHE_LINE
            };
            assert_eq!(buffer.as_ptr().addr() % align, 0);
            buffer.fill(1.5);
            assert!(buffer.iter().all(|&x| x == 1.5));
        }
    }
}
