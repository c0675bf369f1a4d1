//! The driver's functions, from the library that comes with the card.

use std::ffi::{c_char, c_int, c_uint, c_void};
use std::path::Path;

use libloading::os::unix::{RTLD_NOW, Symbol};

use super::DriverError;
use crate::library::Loaded;

const LIBRARY: &str = "libcuda.so.1";

pub(super) type Handle = *mut c_void;
pub(super) type Address = u64;

/// Those of `cuda.h`, under their names without `cu`.
pub(super) struct Functions {
    pub init: Symbol<unsafe extern "C" fn(c_uint) -> c_int>,
    pub error: Symbol<unsafe extern "C" fn(c_int, *mut *const c_char) -> c_int>,
    pub device: Symbol<unsafe extern "C" fn(*mut c_int, c_int) -> c_int>,
    pub name: Symbol<unsafe extern "C" fn(*mut c_char, c_int, c_int) -> c_int>,
    pub attribute: Symbol<unsafe extern "C" fn(*mut c_int, c_int, c_int) -> c_int>,
    pub retain: Symbol<unsafe extern "C" fn(*mut Handle, c_int) -> c_int>,
    pub release: Symbol<unsafe extern "C" fn(c_int) -> c_int>,
    pub set_current: Symbol<unsafe extern "C" fn(Handle) -> c_int>,
    pub synchronize: Symbol<unsafe extern "C" fn() -> c_int>,
    pub memory_info: Symbol<unsafe extern "C" fn(*mut usize, *mut usize) -> c_int>,
    pub alloc: Symbol<unsafe extern "C" fn(*mut Address, usize) -> c_int>,
    pub free: Symbol<unsafe extern "C" fn(Address) -> c_int>,
    pub fill: Symbol<unsafe extern "C" fn(Address, u8, usize) -> c_int>,
    pub copy_in: Symbol<unsafe extern "C" fn(Address, *const c_void, usize) -> c_int>,
    pub copy_out: Symbol<unsafe extern "C" fn(*mut c_void, Address, usize) -> c_int>,
    pub queue_copy_in: Symbol<unsafe extern "C" fn(Address, *const c_void, usize, Handle) -> c_int>,
    pub queue_copy_out: Symbol<unsafe extern "C" fn(*mut c_void, Address, usize, Handle) -> c_int>,
    pub queue_copy: Symbol<unsafe extern "C" fn(Address, Address, usize, Handle) -> c_int>,
    pub host_alloc: Symbol<unsafe extern "C" fn(*mut *mut c_void, usize, c_uint) -> c_int>,
    pub host_free: Symbol<unsafe extern "C" fn(*mut c_void) -> c_int>,
    pub event: Symbol<unsafe extern "C" fn(*mut Handle, c_uint) -> c_int>,
    pub event_free: Symbol<unsafe extern "C" fn(Handle) -> c_int>,
    pub event_record: Symbol<unsafe extern "C" fn(Handle, Handle) -> c_int>,
    pub event_wait: Symbol<unsafe extern "C" fn(Handle) -> c_int>,
    pub event_elapsed: Symbol<unsafe extern "C" fn(*mut f32, Handle, Handle) -> c_int>,
    pub load: Symbol<unsafe extern "C" fn(*mut Handle, *const c_void) -> c_int>,
    pub unload: Symbol<unsafe extern "C" fn(Handle) -> c_int>,
    pub function: Symbol<unsafe extern "C" fn(*mut Handle, Handle, *const c_char) -> c_int>,
    pub launch: Symbol<LaunchKernel>,
    _library: Loaded<DriverError>,
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

impl Functions {
    /// Loads the library.
    pub fn load() -> Result<Self, DriverError> {
        // SAFETY: NVIDIA's driver; its initialisers do nothing that needs care.
        let library =
            unsafe { Loaded::open(Path::new(LIBRARY), RTLD_NOW, |_, reason| DriverError::NoDriver(reason)) }?;
        // SAFETY: the types are those that cuda.h declares; the library is kept as long as they are.
        unsafe {
            Ok(Self {
                init: library.function("cuInit")?,
                error: library.function("cuGetErrorString")?,
                device: library.function("cuDeviceGet")?,
                name: library.function("cuDeviceGetName")?,
                attribute: library.function("cuDeviceGetAttribute")?,
                retain: library.function("cuDevicePrimaryCtxRetain")?,
                release: library.function("cuDevicePrimaryCtxRelease_v2")?,
                set_current: library.function("cuCtxSetCurrent")?,
                synchronize: library.function("cuCtxSynchronize")?,
                memory_info: library.function("cuMemGetInfo_v2")?,
                alloc: library.function("cuMemAlloc_v2")?,
                free: library.function("cuMemFree_v2")?,
                fill: library.function("cuMemsetD8_v2")?,
                copy_in: library.function("cuMemcpyHtoD_v2")?,
                copy_out: library.function("cuMemcpyDtoH_v2")?,
                queue_copy_in: library.function("cuMemcpyHtoDAsync_v2")?,
                queue_copy_out: library.function("cuMemcpyDtoHAsync_v2")?,
                queue_copy: library.function("cuMemcpyDtoDAsync_v2")?,
                host_alloc: library.function("cuMemHostAlloc")?,
                host_free: library.function("cuMemFreeHost")?,
                event: library.function("cuEventCreate")?,
                event_free: library.function("cuEventDestroy_v2")?,
                event_record: library.function("cuEventRecord")?,
                event_wait: library.function("cuEventSynchronize")?,
                event_elapsed: library.function("cuEventElapsedTime")?,
                load: library.function("cuModuleLoadData")?,
                unload: library.function("cuModuleUnload")?,
                function: library.function("cuModuleGetFunction")?,
                launch: library.function("cuLaunchKernel")?,
                _library: library,
            })
        }
    }
}
