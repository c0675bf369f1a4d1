//! Compiled modules on a GPU.

use std::collections::HashMap;
use std::ffi::{CString, c_void};
use std::ptr;

use super::functions::Handle;
use super::{DriverError, Gpu, Stream};
use crate::arguments::Arguments;
use crate::launch::Launch;
use crate::source::Family;

/// A compiled module on a GPU.
pub struct LoadedModule {
    gpu: Gpu,
    handle: Handle,
    kernels: HashMap<&'static str, Handle>,
}

// SAFETY: handles of the driver, used by their owner only.
unsafe impl Send for LoadedModule {}

impl LoadedModule {
    /// The kernels of `family` from `cubin`.
    ///
    /// # Errors
    /// When it was not compiled for this GPU.
    pub fn load(gpu: &Gpu, family: Family, cubin: &[u8]) -> Result<Self, DriverError> {
        let f = gpu.functions();
        let mut handle = ptr::null_mut();
        // SAFETY: a whole cubin, which says its own length.
        gpu.check("cuModuleLoadData", unsafe { (f.load)(&mut handle, cubin.as_ptr().cast()) })?;
        let mut module = Self { gpu: gpu.clone(), handle, kernels: HashMap::new() };
        for &name in family.kernels() {
            let text = CString::new(name).expect("a name without zeros");
            let mut kernel = ptr::null_mut();
            // SAFETY: the module is loaded.
            gpu.check("cuModuleGetFunction", unsafe { (f.function)(&mut kernel, handle, text.as_ptr()) })?;
            module.kernels.insert(name, kernel);
        }
        Ok(module)
    }

    /// Queues a kernel.
    ///
    /// # Errors
    /// When it cannot be launched so.
    ///
    /// # Panics
    /// When there is no such kernel.
    ///
    /// # Safety
    /// The arguments are those of the kernel, and their addresses those of memory as large as the kernel reads and
    /// writes, alive until it has run.
    pub unsafe fn launch<A: Arguments>(
        &self,
        stream: &Stream,
        launch: &Launch,
        arguments: &A,
    ) -> Result<(), DriverError> {
        let kernel = self.kernels[launch.kernel];
        let mut arguments = *arguments;
        let mut parameters = [(&raw mut arguments).cast::<c_void>()];
        let [x, y, z] = launch.grid;
        // SAFETY: the module is loaded; the one parameter is copied before the call returns; the caller vouches for
        // what it points to.
        let code = unsafe {
            (self.gpu.functions().launch)(
                kernel,
                x,
                y,
                z,
                launch.threads,
                1,
                1,
                launch.shared_bytes,
                stream.handle(),
                parameters.as_mut_ptr(),
                ptr::null_mut(),
            )
        };
        self.gpu.check("cuLaunchKernel", code)
    }
}

impl Drop for LoadedModule {
    fn drop(&mut self) {
        // SAFETY: loaded once, unloaded once; the context is alive.
        unsafe { (self.gpu.functions().unload)(self.handle) };
    }
}
