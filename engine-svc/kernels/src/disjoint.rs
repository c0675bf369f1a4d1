//! Mutable access to disjoint parts of one slice from several threads.
//!
//! Contract of the `unsafe` here: whoever asks for a part promises that no one else has any of it.

use std::marker::PhantomData;
use std::ops::Range;

/// A slice whose disjoint parts several threads write at once.
pub(crate) struct SharedMut<'a, T> {
    start: *mut T,
    len: usize,
    _borrow: PhantomData<&'a mut [T]>,
}

// SAFETY: access goes through `slice`, whose callers promise disjoint parts.
unsafe impl<T: Send> Sync for SharedMut<'_, T> {}

impl<'a, T> SharedMut<'a, T> {
    pub(crate) fn new(data: &'a mut [T]) -> SharedMut<'a, T> {
        SharedMut { start: data.as_mut_ptr(), len: data.len(), _borrow: PhantomData }
    }

    /// Elements `from..from + len`.
    ///
    /// # Safety
    /// No other live reference may cover any of them.
    #[inline]
    #[expect(clippy::mut_from_ref, reason = "disjointness is the caller's promise")]
    pub(crate) unsafe fn slice(&self, from: usize, len: usize) -> &mut [T] {
        assert!(from <= self.len && len <= self.len - from);
        // SAFETY: inside the borrowed slice, and exclusive by the caller's promise.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(from), len) }
    }

    /// These rows of `width` elements each.
    ///
    /// # Safety
    /// As [`SharedMut::slice`].
    #[expect(clippy::mut_from_ref, reason = "disjointness is the caller's promise")]
    pub(crate) unsafe fn rows(&self, rows: &Range<usize>, width: usize) -> &mut [T] {
        // SAFETY: passed on.
        unsafe { self.slice(rows.start * width, rows.len() * width) }
    }

    /// Where element `from` lies; writing through it obeys the promise of [`SharedMut::slice`].
    #[inline]
    pub(crate) fn at(&self, from: usize) -> *mut T {
        assert!(from <= self.len);
        // SAFETY: inside the slice or one past its end.
        unsafe { self.start.add(from) }
    }
}
