//! The order of what is queued on a GPU.

use std::ffi::c_void;
use std::ptr;

use super::functions::Handle;
use super::{DriverError, Gpu, Pinned};

/// A queue of work, which runs in order.
pub struct Stream {
    gpu: Gpu,
    handle: Handle,
}

// SAFETY: a handle of the driver, used by its owner only.
unsafe impl Send for Stream {}

impl Stream {
    /// The stream that everything is on by default.
    pub fn default_of(gpu: &Gpu) -> Self {
        Self { gpu: gpu.clone(), handle: ptr::null_mut() }
    }

    /// A stream that somebody else made: a `CUstream`.
    ///
    /// # Safety
    /// It is one of this GPU's, and outlives this.
    pub unsafe fn borrowed(gpu: &Gpu, handle: *mut c_void) -> Self {
        Self { gpu: gpu.clone(), handle }
    }

    pub(super) fn handle(&self) -> Handle {
        self.handle
    }

    /// Queues a copy of the first `len` bytes of `from` to the GPU.
    ///
    /// # Errors
    /// When the driver refuses.
    ///
    /// # Safety
    /// There is memory for them at `to`; `from` lives and is not written to until an event behind this has passed.
    pub unsafe fn copy_in(&self, from: &Pinned, len: usize, to: u64) -> Result<(), DriverError> {
        let bytes = &from.as_slice()[..len];
        // SAFETY: as long as is said; the caller vouches for the rest.
        let code =
            unsafe { (self.gpu.functions().queue_copy_in)(to, bytes.as_ptr().cast(), len, self.handle) };
        self.gpu.check("cuMemcpyHtoDAsync", code)
    }

    /// Queues a copy of `len` bytes from the GPU to the beginning of `to`.
    ///
    /// # Errors
    /// When the driver refuses.
    ///
    /// # Safety
    /// There are as many at `from`; `to` lives and is not used until an event behind this has passed.
    pub unsafe fn copy_out(&self, from: u64, len: usize, to: &mut Pinned) -> Result<(), DriverError> {
        let bytes = &mut to.as_mut_slice()[..len];
        // SAFETY: as long as is said; the caller vouches for the rest.
        let code = unsafe {
            (self.gpu.functions().queue_copy_out)(bytes.as_mut_ptr().cast(), from, len, self.handle)
        };
        self.gpu.check("cuMemcpyDtoHAsync", code)
    }

    /// Queues a copy on the GPU.
    ///
    /// # Errors
    /// When the driver refuses.
    ///
    /// # Safety
    /// There are `len` bytes in both places, and they do not overlap.
    pub unsafe fn copy(&self, from: u64, to: u64, len: usize) -> Result<(), DriverError> {
        // SAFETY: the caller vouches for it.
        let code = unsafe { (self.gpu.functions().queue_copy)(to, from, len, self.handle) };
        self.gpu.check("cuMemcpyDtoDAsync", code)
    }

    /// Puts an event behind what is queued; where it was before counts no more.
    ///
    /// # Errors
    /// When the driver refuses.
    pub fn record(&self, event: &Event) -> Result<(), DriverError> {
        // SAFETY: both are alive.
        let code = unsafe { (self.gpu.functions().event_record)(event.handle, self.handle) };
        self.gpu.check("cuEventRecord", code)
    }
}

/// A place in a stream.
pub struct Event {
    gpu: Gpu,
    handle: Handle,
}

// SAFETY: a handle of the driver, used by its owner only.
unsafe impl Send for Event {}

impl Event {
    /// An event that has passed.
    ///
    /// # Errors
    /// When the driver refuses.
    pub fn new(gpu: &Gpu) -> Result<Self, DriverError> {
        let mut handle = ptr::null_mut();
        // SAFETY: a place to write to.
        gpu.check("cuEventCreate", unsafe { (gpu.functions().event)(&mut handle, 0) })?;
        Ok(Self { gpu: gpu.clone(), handle })
    }

    /// Waits until it has passed.
    ///
    /// # Errors
    /// When anything before it failed.
    pub fn wait(&self) -> Result<(), DriverError> {
        // SAFETY: alive.
        self.gpu.check("cuEventSynchronize", unsafe { (self.gpu.functions().event_wait)(self.handle) })
    }

    /// Milliseconds of the GPU between two events that have passed.
    ///
    /// # Errors
    /// When one has not.
    pub fn milliseconds_since(&self, earlier: &Self) -> Result<f32, DriverError> {
        let mut milliseconds = 0.0;
        // SAFETY: a place to write to; both are alive.
        let code =
            unsafe { (self.gpu.functions().event_elapsed)(&mut milliseconds, earlier.handle, self.handle) };
        self.gpu.check("cuEventElapsedTime", code)?;
        Ok(milliseconds)
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        // SAFETY: made once, destroyed once; the context is alive.
        unsafe { (self.gpu.functions().event_free)(self.handle) };
    }
}
