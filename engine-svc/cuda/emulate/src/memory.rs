//! Device memory of the emulation: guarded, poisoned, read-only for inputs.

use std::slice;

use firstlight_cuda::arguments::DevicePtr;

use crate::machine::machine;

/// `len` elements of `T`; freed when dropped. Every byte is 0xFF until written.
#[derive(Debug)]
pub struct Buf<T> {
    at: *mut T,
    len: usize,
}

impl<T: Copy> Buf<T> {
    /// Poisoned memory that a kernel may write.
    pub fn output(len: usize, name: &str) -> Self {
        Self::new(len, name, false)
    }

    /// Memory with these values that a kernel may write.
    pub fn in_out(values: &[T], name: &str) -> Self {
        let mut buf = Self::new(values.len(), name, false);
        buf.write(values);
        buf
    }

    /// Memory with these values that a kernel may only read. `low`: against the guard below it, not above.
    pub fn input(values: &[T], name: &str, low: bool) -> Self {
        let mut buf = Self::new(values.len(), name, low);
        buf.write(values);
        // SAFETY: alive; nobody writes from here on.
        unsafe { (machine().protect)(buf.at.cast()) };
        buf
    }

    fn new(len: usize, name: &str, low: bool) -> Self {
        Self { at: machine().alloc(len * size_of::<T>(), name, low).cast(), len }
    }

    /// Where it is.
    pub fn device(&self) -> DevicePtr<T> {
        DevicePtr::at(self.at as u64)
    }

    /// The values as they are now.
    pub fn read(&self) -> Vec<T> {
        // SAFETY: `len` elements are there, and any bytes are a value of the number types used here.
        unsafe { slice::from_raw_parts(self.at, self.len) }.to_vec()
    }

    fn write(&mut self, values: &[T]) {
        // SAFETY: as above, and borrowed mutably.
        unsafe { slice::from_raw_parts_mut(self.at, self.len) }.copy_from_slice(values);
    }

    /// Every byte 0xFF again.
    pub fn poison(&mut self) {
        // SAFETY: `len` elements are there.
        unsafe { self.at.write_bytes(0xFF, self.len) }
    }
}

impl<T> Drop for Buf<T> {
    fn drop(&mut self) {
        // SAFETY: allocated by the machine, freed once.
        unsafe { (machine().free)(self.at.cast()) };
    }
}
