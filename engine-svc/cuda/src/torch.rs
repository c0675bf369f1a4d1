//! The part of libtorch that the engine uses on a GPU, loaded when it is needed: `shim/shim.cpp`, compiled when this
//! crate is, carried in the program, and bound to the CUDA half of libtorch that lies beside the half in use.
//!
//! # The contract with the library
//! The functions are those of `shim/shim.cpp`. A function returns 0, or leaves its message for `firstlight_error` on
//! the same thread. A [`Torch`] is closed after all its graphs are freed, because they hold it.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::fs;
use std::io::Write as _;
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};
use std::ptr;
use std::sync::Arc;

use libloading::os::unix::{RTLD_GLOBAL, RTLD_LOCAL, RTLD_NOW, Symbol};
use rustix::fs::{MemfdFlags, memfd_create};

use crate::board::Product;
use crate::library::Loaded;
use crate::source::Number;

/// The compiled shim.
static SHIM: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/shim.so"));

/// In the order in which they need one another.
const LIBRARIES: [&str; 2] = ["libc10_cuda.so", "libtorch_cuda.so"];

/// Why libtorch is not to be had on a GPU.
#[derive(Debug, thiserror::Error)]
pub enum TorchError {
    /// A library is missing.
    #[error(
        "cannot load {library}: {reason}; the engine needs the CUDA half of libtorch 2.11.0 beside the other: put \
         the folder torch/lib of a PyTorch 2.11.0+cu130 first in LD_LIBRARY_PATH"
    )]
    Load {
        /// File that was looked for.
        library: String,
        /// What the loader says.
        reason: String,
    },
    /// The shim cannot be put in place.
    #[error("cannot load the shim to libtorch: {0}")]
    Shim(String),
    /// A call failed.
    #[error("{call}: {reason}")]
    Call {
        /// Function of the shim.
        call: &'static str,
        /// What libtorch says.
        reason: String,
    },
}

type Handle = *mut c_void;

/// As the shim reads it.
#[repr(C)]
struct RawProduct {
    out: u64,
    input: u64,
    weight: u64,
    bias: u64,
    rows: i64,
    outputs: i64,
    inputs: i64,
    f16: i32,
    wide_out: i32,
    gelu_tanh: i32,
    reserved: i32,
}

const _: () = assert!(size_of::<RawProduct>() == 72);

struct Functions {
    error: Symbol<unsafe extern "C" fn() -> *const c_char>,
    open: Symbol<unsafe extern "C" fn(c_int, *mut Handle, *mut Handle) -> c_int>,
    close: Symbol<unsafe extern "C" fn(Handle)>,
    multiply: Symbol<unsafe extern "C" fn(Handle, *const RawProduct) -> c_int>,
    graph_begin: Symbol<unsafe extern "C" fn(Handle, *mut Handle) -> c_int>,
    graph_end: Symbol<unsafe extern "C" fn(Handle, Handle) -> c_int>,
    graph_replay: Symbol<unsafe extern "C" fn(Handle, Handle) -> c_int>,
    graph_free: Symbol<unsafe extern "C" fn(Handle)>,
    _libraries: Vec<Loaded<TorchError>>,
}

/// libtorch on one GPU.
#[derive(Clone)]
pub struct Torch(Arc<Opened>);

struct Opened {
    functions: Functions,
    handle: Handle,
    stream: Handle,
}

// SAFETY: every call makes the device and the stream current on its own thread.
unsafe impl Send for Opened {}
// SAFETY: as above; the stream orders what is queued.
unsafe impl Sync for Opened {}

impl Torch {
    /// libtorch on the GPU number `ordinal`, with a stream of its own.
    ///
    /// # Errors
    /// When the CUDA half of libtorch is not there, or does not take to the GPU.
    pub fn open(ordinal: usize) -> Result<Self, TorchError> {
        let functions = functions()?;
        let (mut handle, mut stream) = (ptr::null_mut(), ptr::null_mut());
        // SAFETY: two places to write to.
        let code = unsafe { (functions.open)(ordinal as c_int, &mut handle, &mut stream) };
        functions.check("firstlight_torch_open", code)?;
        Ok(Self(Arc::new(Opened { functions, handle, stream })))
    }

    /// The stream that everything is queued on: a `CUstream`, alive as long as the process.
    pub fn stream(&self) -> *mut c_void {
        self.0.stream
    }

    /// Queues a multiplication.
    ///
    /// # Errors
    /// What libtorch says.
    ///
    /// # Safety
    /// The addresses are those of memory as large as the shapes say, alive until it has run.
    pub unsafe fn multiply(&self, product: &Product, number: Number) -> Result<(), TorchError> {
        let raw = RawProduct {
            out: product.out,
            input: product.input,
            weight: product.weight,
            bias: product.bias.unwrap_or(0),
            rows: product.rows as i64,
            outputs: product.outputs as i64,
            inputs: product.inputs as i64,
            f16: i32::from(number == Number::F16),
            wide_out: i32::from(product.wide_out),
            gelu_tanh: i32::from(product.gelu_tanh),
            reserved: 0,
        };
        // SAFETY: the caller vouches for the addresses.
        let code = unsafe { (self.0.functions.multiply)(self.0.handle, &raw) };
        self.0.functions.check("firstlight_multiply", code)
    }

    /// From here on what this thread queues on the stream is recorded instead of run.
    ///
    /// # Errors
    /// What libtorch says.
    pub fn begin_capture(&self) -> Result<Recording, TorchError> {
        let (f, mut handle) = (&self.0.functions, ptr::null_mut());
        // SAFETY: a place to write to.
        f.check("firstlight_graph_begin", unsafe { (f.graph_begin)(self.0.handle, &mut handle) })?;
        Ok(Recording(Graph { torch: self.clone(), handle }))
    }
}

/// A graph that is being recorded.
#[must_use = "the stream records until this is ended"]
pub struct Recording(Graph);

impl Recording {
    /// What was recorded.
    ///
    /// # Errors
    /// When something was queued that cannot be recorded.
    pub fn end(self) -> Result<Graph, TorchError> {
        let opened = &self.0.torch.0;
        // SAFETY: begun, ended once.
        let code = unsafe { (opened.functions.graph_end)(opened.handle, self.0.handle) };
        opened.functions.check("firstlight_graph_end", code)?;
        Ok(self.0)
    }
}

/// Work that was recorded.
pub struct Graph {
    torch: Torch,
    handle: Handle,
}

// SAFETY: used by its owner only.
unsafe impl Send for Graph {}

impl Graph {
    /// Queues it.
    ///
    /// # Errors
    /// What libtorch says.
    pub fn replay(&self) -> Result<(), TorchError> {
        let opened = &self.torch.0;
        // SAFETY: recorded whole.
        let code = unsafe { (opened.functions.graph_replay)(opened.handle, self.handle) };
        opened.functions.check("firstlight_graph_replay", code)
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        // SAFETY: begun once, freed once.
        unsafe { (self.torch.0.functions.graph_free)(self.handle) };
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        // SAFETY: opened once, closed once; graphs hold this.
        unsafe { (self.functions.close)(self.handle) };
    }
}

impl Functions {
    fn check(&self, call: &'static str, code: c_int) -> Result<(), TorchError> {
        if code == 0 {
            return Ok(());
        }
        // SAFETY: a string that stays until this thread's next call.
        let reason = unsafe { CStr::from_ptr((self.error)()) }.to_string_lossy().into_owned();
        Err(TorchError::Call { call, reason })
    }
}

fn functions() -> Result<Functions, TorchError> {
    let folder = libtorch_folder();
    let mut libraries = Vec::new();
    for name in LIBRARIES {
        let path = folder.as_ref().map_or_else(|| PathBuf::from(name), |folder| folder.join(name));
        libraries.push(open(&path, RTLD_NOW | RTLD_GLOBAL)?);
    }
    let shim = load_shim(RTLD_NOW)?;
    // SAFETY: the types are those of shim.cpp; the libraries are kept as long as they are.
    unsafe {
        Ok(Functions {
            error: shim.function("firstlight_error")?,
            open: shim.function("firstlight_torch_open")?,
            close: shim.function("firstlight_torch_close")?,
            multiply: shim.function("firstlight_multiply")?,
            graph_begin: shim.function("firstlight_graph_begin")?,
            graph_end: shim.function("firstlight_graph_end")?,
            graph_replay: shim.function("firstlight_graph_replay")?,
            graph_free: shim.function("firstlight_graph_free")?,
            _libraries: libraries.into_iter().chain([shim]).collect(),
        })
    }
}

/// Where the half of libtorch in use was loaded from: the other half must be of the same build.
pub fn libtorch_folder() -> Option<PathBuf> {
    let maps = fs::read_to_string("/proc/self/maps").ok()?;
    let path = maps.lines().find_map(|line| {
        let path = &line[line.find('/')?..];
        path.ends_with("/libtorch_cpu.so").then_some(path)
    })?;
    Path::new(path).parent().map(Path::to_owned)
}

/// A file of its own would have to be found again; this one is part of the program.
fn load_shim(binding: c_int) -> Result<Loaded<TorchError>, TorchError> {
    let failed = |error: &dyn std::fmt::Display| TorchError::Shim(error.to_string());
    let file = memfd_create("firstlight-shim", MemfdFlags::CLOEXEC).map_err(|error| failed(&error))?;
    let mut file = fs::File::from(file);
    file.write_all(SHIM).map_err(|error| failed(&error))?;
    let path = PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
    // SAFETY: ours, without initialisers.
    unsafe { Loaded::open(&path, binding | RTLD_LOCAL, |_, reason| TorchError::Shim(reason)) }
}

fn open(path: &Path, flags: c_int) -> Result<Loaded<TorchError>, TorchError> {
    let missing = |path: &Path, reason| TorchError::Load { library: path.display().to_string(), reason };
    // SAFETY: libtorch and what stands on it; its initialisers register operators.
    unsafe { Loaded::open(path, flags, missing) }
}

#[cfg(test)]
mod tests {
    use libloading::os::unix::RTLD_LAZY;

    use super::*;
    use crate::driver::Gpu;

    #[test]
    fn without_a_gpu_the_shim_says_what_libtorch_says() {
        if Gpu::open(0).is_ok() {
            return;
        }
        let lib = PathBuf::from(std::env::var_os("LIBTORCH").expect("LIBTORCH is set")).join("lib");
        let _cuda = open(&lib.join(LIBRARIES[0]), RTLD_NOW | RTLD_GLOBAL).unwrap();
        // The other half of libtorch is not there, so what it has is bound when it is called: not in this test.
        let shim = load_shim(RTLD_LAZY).unwrap();
        let (mut handle, mut stream) = (ptr::null_mut(), ptr::null_mut());
        // SAFETY: the types are those of shim.cpp.
        let (code, said) = unsafe {
            let torch_open: Symbol<unsafe extern "C" fn(c_int, *mut Handle, *mut Handle) -> c_int> =
                shim.function("firstlight_torch_open").unwrap();
            let error: Symbol<unsafe extern "C" fn() -> *const c_char> =
                shim.function("firstlight_error").unwrap();
            (torch_open(0, &mut handle, &mut stream), CStr::from_ptr(error()).to_string_lossy().into_owned())
        };
        assert!(code == 1 && handle.is_null() && said.contains("CUDA"), "{code}: {said}");
    }

    #[test]
    fn what_is_missing_of_libtorch_is_named() {
        let missing = Path::new("/nonexistent").join(LIBRARIES[1]);
        let said = open(&missing, RTLD_NOW).err().expect("nothing is there").to_string();
        assert!(said.contains("/nonexistent/libtorch_cuda.so") && said.contains("2.11.0+cu130"), "{said}");
    }
}
