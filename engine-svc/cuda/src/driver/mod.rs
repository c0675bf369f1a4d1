//! NVIDIA's driver, loaded when it is needed: finds a GPU, holds memory on it, runs compiled modules.
//!
//! * [`Gpu`]: a card
//! * [`Memory`], [`Pinned`]: memory on the card, and memory of the host that it copies by itself
//! * [`LoadedModule`]: compiled kernels
//! * [`Stream`], [`Event`]: the order of what is queued
//!
//! # The contract with the library
//! The functions are those of `cuda.h`. A [`Gpu`] retains the device's primary context, the one that libtorch uses
//! too, and makes it current on the thread that opens it and on each thread that calls [`Gpu::use_here`]. Memory,
//! modules and events hold the [`Gpu`], so that they are freed before the context is released. The driver may be
//! called from any thread, one handle from one thread at a time.

mod functions;
mod memory;
mod module;
mod stream;

use std::ffi::{CStr, c_int};
use std::ptr;
use std::sync::Arc;

pub use memory::{Memory, Pinned};
pub use module::LoadedModule;
pub use stream::{Event, Stream};

use crate::nvrtc::Architecture;
use functions::{Functions, Handle};

/// `CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR` and `…_MINOR`.
const CAPABILITY: (c_int, c_int) = (75, 76);
/// `CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT`.
const PROCESSORS: c_int = 16;

/// Why there is no GPU, or why it does not do as told.
#[derive(Debug, thiserror::Error)]
pub enum DriverError {
    /// No driver on this machine.
    #[error("no NVIDIA driver on this machine: {0}")]
    NoDriver(String),
    /// The card is older than the kernels.
    #[error("{name} is {found}; the kernels need {least} or later", least = Architecture::LEAST)]
    TooOld {
        /// Name of the card.
        name: String,
        /// What it is.
        found: Architecture,
    },
    /// A call failed.
    #[error("{call}: {reason}")]
    Call {
        /// Function of the library.
        call: &'static str,
        /// Its error.
        reason: String,
    },
}

/// A GPU. Clones are the same one.
#[derive(Clone)]
pub struct Gpu(Arc<Context>);

struct Context {
    functions: Functions,
    ordinal: usize,
    device: c_int,
    /// The primary context, retained; null until it is.
    handle: Handle,
    name: String,
    architecture: Architecture,
    processors: usize,
}

// SAFETY: a context may be used from any thread.
unsafe impl Send for Context {}
// SAFETY: the driver guards its contexts.
unsafe impl Sync for Context {}

impl Gpu {
    /// The GPU number `ordinal`, current on this thread.
    ///
    /// # Errors
    /// When there is no driver, no such GPU, or it is too old for the kernels.
    pub fn open(ordinal: usize) -> Result<Self, DriverError> {
        let mut context = Context {
            functions: Functions::load()?,
            ordinal,
            device: 0,
            handle: ptr::null_mut(),
            name: String::new(),
            architecture: Architecture { sm: 0 },
            processors: 0,
        };
        let f = &context.functions;
        let mut device = 0;
        let mut name = [0_u8; 128];
        let (mut major, mut minor, mut processors) = (0, 0, 0);
        // SAFETY: every pointer is to a place of the type that cuda.h says, and as large as is said.
        unsafe {
            f.check("cuInit", (f.init)(0))?;
            f.check("cuDeviceGet", (f.device)(&mut device, ordinal as c_int))?;
            f.check("cuDeviceGetName", (f.name)(name.as_mut_ptr().cast(), name.len() as c_int, device))?;
            for (attribute, value) in
                [(CAPABILITY.0, &mut major), (CAPABILITY.1, &mut minor), (PROCESSORS, &mut processors)]
            {
                f.check("cuDeviceGetAttribute", (f.attribute)(value, attribute, device))?;
            }
        }
        context.device = device;
        context.name = CStr::from_bytes_until_nul(&name).unwrap_or_default().to_string_lossy().into_owned();
        context.architecture = Architecture { sm: (10 * major + minor) as u32 };
        context.processors = processors as usize;
        if context.architecture < Architecture::LEAST {
            return Err(DriverError::TooOld { name: context.name.clone(), found: context.architecture });
        }
        let mut handle = ptr::null_mut();
        // SAFETY: as above; released when dropped.
        let retained = unsafe { (context.functions.retain)(&mut handle, context.device) };
        context.functions.check("cuDevicePrimaryCtxRetain", retained)?;
        context.handle = handle;
        let gpu = Self(Arc::new(context));
        gpu.use_here()?;
        Ok(gpu)
    }

    /// Makes the GPU current on this thread.
    ///
    /// # Errors
    /// When the driver refuses.
    pub fn use_here(&self) -> Result<(), DriverError> {
        // SAFETY: the context is retained.
        self.check("cuCtxSetCurrent", unsafe { (self.functions().set_current)(self.0.handle) })
    }

    /// Its number.
    pub fn ordinal(&self) -> usize {
        self.0.ordinal
    }

    /// As NVIDIA calls it.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// What modules must be compiled for.
    pub fn architecture(&self) -> Architecture {
        self.0.architecture
    }

    /// Multiprocessors.
    pub fn processors(&self) -> usize {
        self.0.processors
    }

    /// Bytes of memory: free, and in all.
    ///
    /// # Errors
    /// When the driver refuses.
    pub fn memory(&self) -> Result<(u64, u64), DriverError> {
        let (mut free, mut total) = (0, 0);
        // SAFETY: two places to write to.
        self.check("cuMemGetInfo", unsafe { (self.functions().memory_info)(&mut free, &mut total) })?;
        Ok((free as u64, total as u64))
    }

    /// Waits for everything queued.
    ///
    /// # Errors
    /// When any of it failed.
    pub fn synchronize(&self) -> Result<(), DriverError> {
        // SAFETY: a context is current.
        self.check("cuCtxSynchronize", unsafe { (self.functions().synchronize)() })
    }

    fn functions(&self) -> &Functions {
        &self.0.functions
    }

    fn check(&self, call: &'static str, code: c_int) -> Result<(), DriverError> {
        self.functions().check(call, code)
    }
}

impl Functions {
    fn check(&self, call: &'static str, code: c_int) -> Result<(), DriverError> {
        if code == 0 {
            return Ok(());
        }
        let mut text = ptr::null();
        // SAFETY: a place to write to; what comes back is null or a constant string.
        let reason = unsafe {
            (self.error)(code, &mut text);
            if text.is_null() {
                format!("error {code}")
            } else {
                CStr::from_ptr(text).to_string_lossy().into_owned()
            }
        };
        Err(DriverError::Call { call, reason })
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        if !self.handle.is_null() {
            // SAFETY: retained once, released once.
            unsafe { (self.functions.release)(self.device) };
        }
    }
}
