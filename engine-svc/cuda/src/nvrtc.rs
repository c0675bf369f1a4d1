//! NVIDIA's run-time compiler, loaded when it is needed.
//!
//! # The contract with the library
//! The functions are those of `nvrtc.h` 13. `libnvrtc` opens its builtins by their bare name, so they must be loaded
//! before it where the loader does not find them. A program handle is destroyed by whoever created it; strings and
//! arrays passed in are copied by the library before the call returns.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::path::{Path, PathBuf};
use std::ptr;

use libloading::os::unix::{RTLD_GLOBAL, RTLD_NOW, Symbol};

use crate::library::Loaded;
use crate::source::{HEADERS, Module};

const LIBRARY: &str = "libnvrtc.so.13";
const BUILTINS: &str = "libnvrtc-builtins.so.13.0";

/// Options that every module is compiled with, besides its architecture and its macros.
pub const OPTIONS: [&str; 3] = ["--std=c++17", "-lineinfo", "--ptxas-options=-v"];

/// A GPU architecture: compute capability 9.0 is `sm_90`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Architecture {
    /// Compute capability without its point: 90.
    pub sm: u32,
}

impl Architecture {
    /// The least that the kernels are written for (`cp.async`, bf16 products).
    pub const LEAST: Self = Self { sm: 80 };
}

impl std::fmt::Display for Architecture {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "sm_{}", self.sm)
    }
}

/// Why a module is not to be had.
#[derive(Debug, thiserror::Error)]
pub enum NvrtcError {
    /// The library is not there, or is another one.
    #[error("cannot load {library}: {reason}; it comes with CUDA 13 and with the package nvidia-cuda-nvrtc")]
    Load {
        /// File that was looked for.
        library: String,
        /// What the loader says.
        reason: String,
    },
    /// A call failed.
    #[error("{call}: {reason}")]
    Call {
        /// Function of the library.
        call: &'static str,
        /// Its error.
        reason: String,
    },
    /// The compiler refuses the source.
    #[error("{module} for {architecture} does not compile:\n{log}")]
    Compile {
        /// Name of the module.
        module: String,
        /// For which it was compiled.
        architecture: Architecture,
        /// What the compiler says.
        log: String,
    },
}

/// A compiled module.
#[derive(Debug)]
pub struct Compiled {
    /// Machine code for one architecture.
    pub cubin: Vec<u8>,
    /// Warnings, and what each kernel takes in registers and memory.
    pub log: String,
}

/// The library.
pub struct Nvrtc {
    functions: Functions,
    version: (c_int, c_int),
}

type Program = *mut c_void;

struct Functions {
    version: Symbol<unsafe extern "C" fn(*mut c_int, *mut c_int) -> c_int>,
    error_string: Symbol<unsafe extern "C" fn(c_int) -> *const c_char>,
    create: Symbol<
        unsafe extern "C" fn(
            *mut Program,
            *const c_char,
            *const c_char,
            c_int,
            *const *const c_char,
            *const *const c_char,
        ) -> c_int,
    >,
    compile: Symbol<unsafe extern "C" fn(Program, c_int, *const *const c_char) -> c_int>,
    log_size: Symbol<SizeOf>,
    log: Symbol<CopyOut>,
    cubin_size: Symbol<SizeOf>,
    cubin: Symbol<CopyOut>,
    destroy: Symbol<unsafe extern "C" fn(*mut Program) -> c_int>,
    _libraries: [Option<Loaded<NvrtcError>>; 2],
}

type SizeOf = unsafe extern "C" fn(Program, *mut usize) -> c_int;
type CopyOut = unsafe extern "C" fn(Program, *mut c_char) -> c_int;

impl Nvrtc {
    /// Loads the library from `folder`, or from where the loader looks.
    ///
    /// # Errors
    /// When it is not there.
    pub fn load(folder: Option<&Path>) -> Result<Self, NvrtcError> {
        let path = |name: &str| folder.map_or_else(|| PathBuf::from(name), |folder| folder.join(name));
        // The library finds them by itself where the loader's path has them.
        let builtins = open(&path(BUILTINS), RTLD_NOW | RTLD_GLOBAL).ok();
        let library = open(&path(LIBRARY), RTLD_NOW)?;
        // SAFETY: the types are those that nvrtc.h 13 declares; the library is kept as long as they are.
        let functions = unsafe {
            Functions {
                version: library.function("nvrtcVersion")?,
                error_string: library.function("nvrtcGetErrorString")?,
                create: library.function("nvrtcCreateProgram")?,
                compile: library.function("nvrtcCompileProgram")?,
                log_size: library.function("nvrtcGetProgramLogSize")?,
                log: library.function("nvrtcGetProgramLog")?,
                cubin_size: library.function("nvrtcGetCUBINSize")?,
                cubin: library.function("nvrtcGetCUBIN")?,
                destroy: library.function("nvrtcDestroyProgram")?,
                _libraries: [Some(library), builtins],
            }
        };
        let mut nvrtc = Self { functions, version: (0, 0) };
        let (mut major, mut minor) = (0, 0);
        // SAFETY: two places to write to.
        let code = unsafe { (nvrtc.functions.version)(&mut major, &mut minor) };
        nvrtc.check("nvrtcVersion", code)?;
        nvrtc.version = (major, minor);
        Ok(nvrtc)
    }

    /// `13.0`.
    pub fn version(&self) -> String {
        format!("{}.{}", self.version.0, self.version.1)
    }

    /// Compiles a module for an architecture; no GPU is needed. About 0.3 s.
    ///
    /// # Errors
    /// With the compiler's log.
    pub fn compile(&self, module: &Module, architecture: Architecture) -> Result<Compiled, NvrtcError> {
        let mut options = vec![format!("--gpu-architecture={architecture}")];
        options.extend(OPTIONS.iter().map(|option| (*option).to_owned()));
        options.extend(module.defines());
        let options = strings(options.iter().map(String::as_str));
        let program = self.program(module)?;
        let pointers = pointers(&options);
        // SAFETY: the program is alive; the array holds as many strings as is said.
        let code =
            unsafe { (self.functions.compile)(program.handle, pointers.len() as c_int, pointers.as_ptr()) };
        let log = program.bytes("nvrtcGetProgramLog", &self.functions.log_size, &self.functions.log)?;
        let log = String::from_utf8_lossy(&log).trim_end_matches('\0').trim().to_owned();
        if code != 0 {
            return Err(NvrtcError::Compile { module: module.name(), architecture, log });
        }
        let cubin = program.bytes("nvrtcGetCUBIN", &self.functions.cubin_size, &self.functions.cubin)?;
        Ok(Compiled { cubin, log })
    }

    fn program(&self, module: &Module) -> Result<OwnedProgram<'_>, NvrtcError> {
        let family = module.family;
        let texts = strings(HEADERS.iter().map(|(_, text)| *text));
        let names = strings(HEADERS.iter().map(|(name, _)| *name));
        let own = strings([family.text(), &format!("{}.cu", family.name())]);
        let mut handle = ptr::null_mut();
        // SAFETY: the arrays hold as many strings as is said, each ended by a zero; all are copied.
        let code = unsafe {
            (self.functions.create)(
                &mut handle,
                own[0].as_ptr(),
                own[1].as_ptr(),
                HEADERS.len() as c_int,
                pointers(&texts).as_ptr(),
                pointers(&names).as_ptr(),
            )
        };
        self.check("nvrtcCreateProgram", code)?;
        Ok(OwnedProgram { nvrtc: self, handle })
    }

    fn check(&self, call: &'static str, code: c_int) -> Result<(), NvrtcError> {
        if code == 0 {
            return Ok(());
        }
        // SAFETY: any code is allowed; what comes back is a constant string.
        let reason = unsafe { CStr::from_ptr((self.functions.error_string)(code)) };
        Err(NvrtcError::Call { call, reason: reason.to_string_lossy().into_owned() })
    }
}

struct OwnedProgram<'a> {
    nvrtc: &'a Nvrtc,
    handle: Program,
}

impl OwnedProgram<'_> {
    fn bytes(&self, call: &'static str, size: &SizeOf, copy: &CopyOut) -> Result<Vec<u8>, NvrtcError> {
        let mut len = 0;
        // SAFETY: the program is alive.
        self.nvrtc.check(call, unsafe { size(self.handle, &mut len) })?;
        let mut bytes = vec![0_u8; len];
        // SAFETY: the buffer is as large as the library has just said.
        self.nvrtc.check(call, unsafe { copy(self.handle, bytes.as_mut_ptr().cast()) })?;
        Ok(bytes)
    }
}

impl Drop for OwnedProgram<'_> {
    fn drop(&mut self) {
        // SAFETY: created by us, destroyed once.
        unsafe { (self.nvrtc.functions.destroy)(&mut self.handle) };
    }
}

fn open(path: &Path, flags: c_int) -> Result<Loaded<NvrtcError>, NvrtcError> {
    let missing = |path: &Path, reason| NvrtcError::Load { library: path.display().to_string(), reason };
    // SAFETY: NVIDIA's libraries; their initialisers do nothing that needs care.
    unsafe { Loaded::open(path, flags, missing) }
}

fn strings<'a>(texts: impl IntoIterator<Item = &'a str>) -> Vec<CString> {
    texts.into_iter().map(|text| CString::new(text).expect("sources and options hold no zero")).collect()
}

fn pointers(strings: &[CString]) -> Vec<*const c_char> {
    strings.iter().map(|string| string.as_ptr()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_that_is_not_there_is_named() {
        let error = Nvrtc::load(Some(Path::new("/nonexistent"))).err().expect("nothing is there");
        let text = error.to_string();
        assert!(
            text.contains("/nonexistent/libnvrtc.so.13: cannot open") && text.contains("nvidia-cuda-nvrtc"),
            "{text}"
        );
    }
}
