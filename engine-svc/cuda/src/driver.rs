//! NVIDIA's driver, loaded when it is needed: finds a GPU, holds memory on it, runs compiled modules.
//!
//! # The contract with the library
//! The functions are those of `cuda.h`. A [`Gpu`] retains the device's primary context, the one that libtorch uses
//! too, and makes it current on the thread that opens it and on each thread that calls [`Gpu::use_here`]. Memory and
//! modules are freed before the context is released, because they borrow the [`Gpu`].

use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::ptr;

use libloading::os::unix::{Library, RTLD_NOW, Symbol};

use crate::arguments::Arguments;
use crate::launch::Launch;
use crate::library::reason;
use crate::nvrtc::Architecture;

const LIBRARY: &str = "libcuda.so.1";
/// `CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR` and `…_MINOR`.
const CAPABILITY: (c_int, c_int) = (75, 76);

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

type Handle = *mut c_void;
type Address = u64;

struct Functions {
    init: Symbol<unsafe extern "C" fn(c_uint) -> c_int>,
    error: Symbol<unsafe extern "C" fn(c_int, *mut *const c_char) -> c_int>,
    device: Symbol<unsafe extern "C" fn(*mut c_int, c_int) -> c_int>,
    name: Symbol<unsafe extern "C" fn(*mut c_char, c_int, c_int) -> c_int>,
    attribute: Symbol<unsafe extern "C" fn(*mut c_int, c_int, c_int) -> c_int>,
    retain: Symbol<unsafe extern "C" fn(*mut Handle, c_int) -> c_int>,
    release: Symbol<unsafe extern "C" fn(c_int) -> c_int>,
    set_current: Symbol<unsafe extern "C" fn(Handle) -> c_int>,
    synchronize: Symbol<unsafe extern "C" fn() -> c_int>,
    memory_info: Symbol<unsafe extern "C" fn(*mut usize, *mut usize) -> c_int>,
    alloc: Symbol<unsafe extern "C" fn(*mut Address, usize) -> c_int>,
    free: Symbol<unsafe extern "C" fn(Address) -> c_int>,
    fill: Symbol<unsafe extern "C" fn(Address, u8, usize) -> c_int>,
    copy_in: Symbol<unsafe extern "C" fn(Address, *const c_void, usize) -> c_int>,
    copy_out: Symbol<unsafe extern "C" fn(*mut c_void, Address, usize) -> c_int>,
    load: Symbol<unsafe extern "C" fn(*mut Handle, *const c_void) -> c_int>,
    unload: Symbol<unsafe extern "C" fn(Handle) -> c_int>,
    function: Symbol<unsafe extern "C" fn(*mut Handle, Handle, *const c_char) -> c_int>,
    launch: Symbol<LaunchKernel>,
    _library: Library,
}

type LaunchKernel = unsafe extern "C" fn(
    Handle,
    c_uint,
    c_uint,
    c_uint,
    c_uint,
    c_uint,
    c_uint,
    c_uint,
    Handle,
    *mut *mut c_void,
    *mut *mut c_void,
) -> c_int;

/// A GPU.
pub struct Gpu {
    functions: Functions,
    device: c_int,
    context: Handle,
    name: String,
    architecture: Architecture,
}

impl Gpu {
    /// The GPU number `ordinal`, current on this thread.
    ///
    /// # Errors
    /// When there is no driver, no such GPU, or it is too old for the kernels.
    pub fn open(ordinal: usize) -> Result<Self, DriverError> {
        let mut gpu = Self {
            functions: functions()?,
            device: 0,
            context: ptr::null_mut(),
            name: String::new(),
            architecture: Architecture { sm: 0 },
        };
        let f = &gpu.functions;
        let mut device = 0;
        let mut name = [0_u8; 128];
        let (mut major, mut minor) = (0, 0);
        // SAFETY: every pointer is to a place of the type that cuda.h says, and as large as is said.
        unsafe {
            gpu.check("cuInit", (f.init)(0))?;
            gpu.check("cuDeviceGet", (f.device)(&mut device, ordinal as c_int))?;
            gpu.check("cuDeviceGetName", (f.name)(name.as_mut_ptr().cast(), name.len() as c_int, device))?;
            gpu.check("cuDeviceGetAttribute", (f.attribute)(&mut major, CAPABILITY.0, device))?;
            gpu.check("cuDeviceGetAttribute", (f.attribute)(&mut minor, CAPABILITY.1, device))?;
        }
        gpu.device = device;
        gpu.name = CStr::from_bytes_until_nul(&name).unwrap_or_default().to_string_lossy().into_owned();
        gpu.architecture = Architecture { sm: (10 * major + minor) as u32 };
        if gpu.architecture < Architecture::LEAST {
            return Err(DriverError::TooOld { name: gpu.name.clone(), found: gpu.architecture });
        }
        let mut context = ptr::null_mut();
        // SAFETY: as above; released when dropped.
        gpu.check("cuDevicePrimaryCtxRetain", unsafe { (gpu.functions.retain)(&mut context, gpu.device) })?;
        gpu.context = context;
        gpu.use_here()?;
        Ok(gpu)
    }

    /// Makes the GPU current on this thread.
    ///
    /// # Errors
    /// When the driver refuses.
    pub fn use_here(&self) -> Result<(), DriverError> {
        // SAFETY: the context is retained.
        self.check("cuCtxSetCurrent", unsafe { (self.functions.set_current)(self.context) })
    }

    /// As NVIDIA calls it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What modules must be compiled for.
    pub fn architecture(&self) -> Architecture {
        self.architecture
    }

    /// Bytes of memory: free, and in all.
    ///
    /// # Errors
    /// When the driver refuses.
    pub fn memory(&self) -> Result<(u64, u64), DriverError> {
        let (mut free, mut total) = (0, 0);
        // SAFETY: two places to write to.
        self.check("cuMemGetInfo", unsafe { (self.functions.memory_info)(&mut free, &mut total) })?;
        Ok((free as u64, total as u64))
    }

    /// Memory with these bytes.
    ///
    /// # Errors
    /// When there is not enough.
    pub fn upload(&self, bytes: &[u8]) -> Result<Memory<'_>, DriverError> {
        let mut address = 0;
        // SAFETY: a place to write to; at least one byte, as the driver wants.
        self.check("cuMemAlloc", unsafe { (self.functions.alloc)(&mut address, bytes.len().max(1)) })?;
        let memory = Memory { gpu: self, address, len: bytes.len() };
        // SAFETY: both are as long as is said.
        self.check("cuMemcpyHtoD", unsafe {
            (self.functions.copy_in)(address, bytes.as_ptr().cast(), bytes.len())
        })?;
        Ok(memory)
    }

    /// A compiled module.
    ///
    /// # Errors
    /// When it was not compiled for this GPU.
    pub fn load(&self, cubin: &[u8]) -> Result<LoadedModule<'_>, DriverError> {
        let mut handle = ptr::null_mut();
        // SAFETY: a whole cubin, which says its own length.
        self.check("cuModuleLoadData", unsafe { (self.functions.load)(&mut handle, cubin.as_ptr().cast()) })?;
        Ok(LoadedModule { gpu: self, handle })
    }

    /// Waits for everything queued.
    ///
    /// # Errors
    /// When any of it failed.
    pub fn synchronize(&self) -> Result<(), DriverError> {
        // SAFETY: a context is current.
        self.check("cuCtxSynchronize", unsafe { (self.functions.synchronize)() })
    }

    fn check(&self, call: &'static str, code: c_int) -> Result<(), DriverError> {
        if code == 0 {
            return Ok(());
        }
        let mut text = ptr::null();
        // SAFETY: a place to write to; what comes back is null or a constant string.
        let reason = unsafe {
            (self.functions.error)(code, &mut text);
            if text.is_null() {
                format!("error {code}")
            } else {
                CStr::from_ptr(text).to_string_lossy().into_owned()
            }
        };
        Err(DriverError::Call { call, reason })
    }
}

impl Drop for Gpu {
    fn drop(&mut self) {
        if !self.context.is_null() {
            // SAFETY: retained once, released once.
            unsafe { (self.functions.release)(self.device) };
        }
    }
}

/// Memory on a GPU.
pub struct Memory<'a> {
    gpu: &'a Gpu,
    address: Address,
    len: usize,
}

impl Memory<'_> {
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
        self.gpu.check("cuMemsetD8", unsafe { (self.gpu.functions.fill)(self.address, byte, self.len) })
    }

    /// Its bytes, after everything queued has run.
    ///
    /// # Errors
    /// When any of it failed.
    pub fn download(&self) -> Result<Vec<u8>, DriverError> {
        let mut bytes = vec![0_u8; self.len];
        // SAFETY: both are as long as is said.
        self.gpu.check("cuMemcpyDtoH", unsafe {
            (self.gpu.functions.copy_out)(bytes.as_mut_ptr().cast(), self.address, self.len)
        })?;
        Ok(bytes)
    }
}

impl Drop for Memory<'_> {
    fn drop(&mut self) {
        // SAFETY: allocated once, freed once; the context is alive.
        unsafe { (self.gpu.functions.free)(self.address) };
    }
}

/// A compiled module on a GPU.
pub struct LoadedModule<'a> {
    gpu: &'a Gpu,
    handle: Handle,
}

impl LoadedModule<'_> {
    /// Queues a kernel on the default stream.
    ///
    /// # Errors
    /// When there is no such kernel, or it cannot be launched so.
    ///
    /// # Safety
    /// The arguments are those of the kernel, and their addresses those of memory as large as the kernel reads and
    /// writes, alive until it has run.
    pub unsafe fn launch<A: Arguments>(&self, launch: &Launch, arguments: &A) -> Result<(), DriverError> {
        let f = &self.gpu.functions;
        let name = CString::new(launch.kernel).expect("a name without zeros");
        let mut function = ptr::null_mut();
        let mut arguments = *arguments;
        let mut parameters = [(&raw mut arguments).cast::<c_void>()];
        let [x, y, z] = launch.grid;
        // SAFETY: the module is loaded; the one parameter is copied before the call returns; the caller vouches for
        // what it points to.
        unsafe {
            self.gpu.check("cuModuleGetFunction", (f.function)(&mut function, self.handle, name.as_ptr()))?;
            let code = (f.launch)(
                function,
                x,
                y,
                z,
                launch.threads,
                1,
                1,
                launch.shared_bytes,
                ptr::null_mut(),
                parameters.as_mut_ptr(),
                ptr::null_mut(),
            );
            self.gpu.check("cuLaunchKernel", code)
        }
    }
}

impl Drop for LoadedModule<'_> {
    fn drop(&mut self) {
        // SAFETY: loaded once, unloaded once; the context is alive.
        unsafe { (self.gpu.functions.unload)(self.handle) };
    }
}

fn functions() -> Result<Functions, DriverError> {
    // SAFETY: NVIDIA's driver; its initialisers do nothing that needs care.
    let library = unsafe { Library::open(Some(LIBRARY), RTLD_NOW) };
    let library = library.map_err(|error| DriverError::NoDriver(reason(&error)))?;
    // SAFETY: the types are those that cuda.h declares; the library is kept as long as they are.
    unsafe {
        Ok(Functions {
            init: symbol(&library, "cuInit")?,
            error: symbol(&library, "cuGetErrorString")?,
            device: symbol(&library, "cuDeviceGet")?,
            name: symbol(&library, "cuDeviceGetName")?,
            attribute: symbol(&library, "cuDeviceGetAttribute")?,
            retain: symbol(&library, "cuDevicePrimaryCtxRetain")?,
            release: symbol(&library, "cuDevicePrimaryCtxRelease_v2")?,
            set_current: symbol(&library, "cuCtxSetCurrent")?,
            synchronize: symbol(&library, "cuCtxSynchronize")?,
            memory_info: symbol(&library, "cuMemGetInfo_v2")?,
            alloc: symbol(&library, "cuMemAlloc_v2")?,
            free: symbol(&library, "cuMemFree_v2")?,
            fill: symbol(&library, "cuMemsetD8_v2")?,
            copy_in: symbol(&library, "cuMemcpyHtoD_v2")?,
            copy_out: symbol(&library, "cuMemcpyDtoH_v2")?,
            load: symbol(&library, "cuModuleLoadData")?,
            unload: symbol(&library, "cuModuleUnload")?,
            function: symbol(&library, "cuModuleGetFunction")?,
            launch: symbol(&library, "cuLaunchKernel")?,
            _library: library,
        })
    }
}

/// # Safety
/// `T` is the function's type.
unsafe fn symbol<T>(library: &Library, name: &'static str) -> Result<Symbol<T>, DriverError> {
    // SAFETY: the caller vouches for the type.
    let symbol = unsafe { library.get(name.as_bytes()) };
    symbol.map_err(|error| DriverError::NoDriver(reason(&error)))
}
