//! Memory on a GPU, and memory of the host that the GPU copies by itself.

use std::ptr;
use std::slice;

use super::functions::Address;
use super::{DriverError, Gpu};

/// Memory on a GPU; freed when dropped.
pub struct Memory {
    gpu: Gpu,
    address: Address,
    len: usize,
}

impl Memory {
    /// `len` bytes, whatever is in them.
    ///
    /// # Errors
    /// When there is not enough.
    pub fn new(gpu: &Gpu, len: usize) -> Result<Self, DriverError> {
        let mut address = 0;
        // SAFETY: a place to write to; at least one byte, as the driver wants.
        gpu.check("cuMemAlloc", unsafe { (gpu.functions().alloc)(&mut address, len.max(1)) })?;
        Ok(Self { gpu: gpu.clone(), address, len })
    }

    /// Where it is.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// Sets every byte.
    ///
    /// # Errors
    /// When the driver refuses.
    pub fn fill(&mut self, byte: u8) -> Result<(), DriverError> {
        // SAFETY: as long as is said.
        self.gpu.check("cuMemsetD8", unsafe { (self.gpu.functions().fill)(self.address, byte, self.len) })
    }

    /// Writes bytes from `offset` on, at once.
    ///
    /// # Errors
    /// When the driver refuses.
    ///
    /// # Panics
    /// When they do not fit.
    pub fn write(&mut self, offset: usize, bytes: &[u8]) -> Result<(), DriverError> {
        assert!(offset.checked_add(bytes.len()).is_some_and(|end| end <= self.len), "beyond {}", self.len);
        let to = self.address + offset as u64;
        // SAFETY: both are as long as is said.
        self.gpu.check("cuMemcpyHtoD", unsafe {
            (self.gpu.functions().copy_in)(to, bytes.as_ptr().cast(), bytes.len())
        })
    }

    /// Its bytes, after everything queued has run.
    ///
    /// # Errors
    /// When any of it failed.
    pub fn download(&self) -> Result<Vec<u8>, DriverError> {
        let mut bytes = vec![0_u8; self.len];
        // SAFETY: both are as long as is said.
        self.gpu.check("cuMemcpyDtoH", unsafe {
            (self.gpu.functions().copy_out)(bytes.as_mut_ptr().cast(), self.address, self.len)
        })?;
        Ok(bytes)
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: allocated once, freed once; the context is alive.
        unsafe { (self.gpu.functions().free)(self.address) };
    }
}

/// Memory of the host that stays where it is, so that the GPU copies it while the host goes on.
pub struct Pinned {
    gpu: Gpu,
    at: *mut u8,
    len: usize,
}

// SAFETY: owned memory.
unsafe impl Send for Pinned {}

impl Pinned {
    /// `len` zeros.
    ///
    /// # Errors
    /// When the host has not enough.
    pub fn new(gpu: &Gpu, len: usize) -> Result<Self, DriverError> {
        let mut at = ptr::null_mut();
        // SAFETY: a place to write to; at least one byte, as the driver wants.
        gpu.check("cuMemHostAlloc", unsafe { (gpu.functions().host_alloc)(&mut at, len.max(1), 0) })?;
        // SAFETY: as long as was asked for.
        unsafe { at.cast::<u8>().write_bytes(0, len) };
        Ok(Self { gpu: gpu.clone(), at: at.cast(), len })
    }

    /// Its bytes. Those that the GPU is to write are there once an event behind the copy has passed.
    pub fn as_slice(&self) -> &[u8] {
        // SAFETY: allocated, and written at least once.
        unsafe { slice::from_raw_parts(self.at, self.len) }
    }

    /// The same, to write to. Those that the GPU is to read must stay until an event behind the copy has passed.
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: as above, and borrowed mutably.
        unsafe { slice::from_raw_parts_mut(self.at, self.len) }
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        // SAFETY: allocated once, freed once; the context is alive.
        unsafe { (self.gpu.functions().host_free)(self.at.cast()) };
    }
}
