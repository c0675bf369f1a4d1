//! Owned, zeroed, aligned memory for weights, KV and scratch.
//!
//! Contract of the `unsafe` here: a buffer owns `len` initialised elements of a `Pod` type from `ptr`
//! on, inside memory that its backing keeps alive and that no other buffer covers.

use std::ffi::c_void;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, PoisonError};

use bytemuck::Pod;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

const CACHE_LINE: usize = 64;
const HUGE_PAGE: usize = 2 << 20;

/// Buffers of at least this size have a mapping of their own, aligned to a huge page.
const OWN_MAPPING: usize = 8 * HUGE_PAGE;

/// Smaller ones are cut, one after the other, from mappings of this size, so that the matrices of a
/// model lie in huge pages and in the order in which they were made.
const SHARED_MAPPING: usize = 32 * HUGE_PAGE;

/// A fixed-length array aligned to a cache line, in memory that is huge pages where the kernel has
/// them, and that costs nothing until it is written. Meant for what lives as long as the engine: the
/// memory of smaller ones goes back to the system only with all others made around the same time.
#[derive(Debug)]
pub struct Buffer<T: Pod> {
    ptr: NonNull<T>,
    len: usize,
    /// Dropped with the last buffer inside it.
    _backing: Option<Arc<Mapping>>,
}

// SAFETY: a buffer owns its elements alone, like a Vec, and they are plain data.
unsafe impl<T: Pod + Send> Send for Buffer<T> {}
// SAFETY: as above; shared access only reads.
unsafe impl<T: Pod + Sync> Sync for Buffer<T> {}

impl<T: Pod> Buffer<T> {
    /// `len` zeros.
    ///
    /// # Panics
    /// If the system has no such memory left.
    pub fn zeroed(len: usize) -> Buffer<T> {
        const { assert!(align_of::<T>() <= CACHE_LINE) };
        let Some(bytes) = len.checked_mul(size_of::<T>()) else {
            panic!("a buffer of {len} elements exceeds the address space");
        };
        if bytes == 0 {
            return Buffer { ptr: NonNull::<Line>::dangling().cast(), len, _backing: None };
        }
        let (mapping, offset) =
            if bytes >= OWN_MAPPING { (Arc::new(Mapping::new(bytes)), 0) } else { cut(bytes) };
        // SAFETY: `offset + bytes` lies in the mapping.
        let ptr = unsafe { mapping.start.byte_add(offset) }.cast();
        Buffer { ptr, len, _backing: Some(mapping) }
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

/// The shared mapping that is being cut, and how much of it is taken. Nothing is ever given back to
/// it, so every cut is still zero.
static CURRENT: Mutex<Option<(Arc<Mapping>, usize)>> = Mutex::new(None);

/// Takes `bytes` from the shared mapping: which one, and from where.
fn cut(bytes: usize) -> (Arc<Mapping>, usize) {
    let mut current = CURRENT.lock().unwrap_or_else(PoisonError::into_inner);
    let bytes = bytes.next_multiple_of(CACHE_LINE);
    let (mapping, taken) = match &mut *current {
        Some((mapping, taken)) if *taken + bytes <= SHARED_MAPPING => (mapping, taken),
        slot => {
            let (mapping, taken) = slot.insert((Arc::new(Mapping::new(SHARED_MAPPING)), 0));
            (mapping, taken)
        }
    };
    let offset = *taken;
    *taken += bytes;
    (Arc::clone(mapping), offset)
}

/// Anonymous memory aligned to a huge page.
#[derive(Debug)]
struct Mapping {
    start: NonNull<c_void>,
    base: *mut c_void,
    bytes: usize,
}

// SAFETY: a mapping only names memory; who may touch which part is up to the buffers.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    fn new(used: usize) -> Mapping {
        let used = used.next_multiple_of(HUGE_PAGE);
        let bytes = used + HUGE_PAGE;
        // SAFETY: a fresh private mapping at an address the system picks overlaps nothing.
        let mapped = unsafe {
            mmap_anonymous(
                std::ptr::null_mut(),
                bytes,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE | MapFlags::NORESERVE,
            )
        };
        let base = mapped.unwrap_or_else(|error| panic!("no memory for {bytes} bytes: {error}"));
        // SAFETY: base + skip + used stays within the mapping of used + HUGE_PAGE bytes.
        let start = unsafe { base.byte_add(base.addr().wrapping_neg() % HUGE_PAGE) };
        // Only a hint: a kernel without transparent huge pages refuses it and all still works.
        // SAFETY: the range is inside the mapping, and the advice does not change its contents.
        let _ = unsafe { madvise(start, used, Advice::LinuxHugepage) };
        match NonNull::new(start) {
            Some(start) => Mapping { start, base, bytes },
            None => panic!("the system mapped memory at address zero"),
        }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped in `new` with this base and size, and no buffer lies in it any more.
        let _ = unsafe { munmap(self.base, self.bytes) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_size_is_zeroed_aligned_and_writable() {
        for len in [0, 1, 63, 4096, HUGE_PAGE / 4, OWN_MAPPING / 4 - 1, OWN_MAPPING / 4, OWN_MAPPING] {
            let mut buffer = Buffer::<f32>::zeroed(len);
            assert_eq!(buffer.len(), len);
            assert!(buffer.iter().all(|&x| x == 0.0));
            let align = if len * 4 >= OWN_MAPPING { HUGE_PAGE } else { CACHE_LINE };
            assert_eq!(buffer.as_ptr().addr() % align, 0);
            buffer.fill(1.5);
            assert!(buffer.iter().all(|&x| x == 1.5));
        }
    }

    #[test]
    fn buffers_cut_from_one_mapping_do_not_overlap() {
        let mut buffers: Vec<Buffer<u8>> = (1..200).map(|len| Buffer::zeroed(len * 1000)).collect();
        for (index, buffer) in buffers.iter_mut().enumerate() {
            buffer.fill(index as u8);
        }
        for (index, buffer) in buffers.iter().enumerate() {
            assert!(buffer.iter().all(|&x| x == index as u8));
        }
    }
}
