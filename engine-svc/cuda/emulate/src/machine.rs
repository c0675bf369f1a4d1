//! The C++ files beside, compiled once and loaded for the whole process.
//!
//! # The contract
//! The functions are those of `machine.h`. One launch at a time in a process, which [`Machine::launch`]
//! sees to.
//!
//! # More checks
//! `FIRSTLIGHT_EMULATION_FLAGS` holds flags for the compiler besides our own, for the machine and for kernels. With
//! `-fsanitize=undefined -fno-sanitize-recover=undefined` in it, whoever runs into undefined behaviour is ended.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, OnceLock, PoisonError};

use firstlight_cuda::launch::Launch;
use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_NOW, Symbol};
use sha2::{Digest, Sha256};

/// A kernel as the emulation has it: it reads its arguments through a pointer.
pub type KernelFn = unsafe extern "C" fn(*const c_void);

/// What runs kernels on the CPU.
#[derive(Debug)]
pub struct Machine {
    pub(crate) alloc: Symbol<unsafe extern "C" fn(usize, *const c_char, c_int) -> *mut c_void>,
    pub(crate) free: Symbol<unsafe extern "C" fn(*mut c_void)>,
    pub(crate) protect: Symbol<unsafe extern "C" fn(*mut c_void)>,
    launch: Symbol<LaunchFn>,
    one_at_a_time: Mutex<()>,
    _library: Library,
}

type LaunchFn =
    unsafe extern "C" fn(KernelFn, *const c_void, *const u32, *const u32, usize, u64) -> *const c_char;

/// The emulated machine of this process.
pub fn machine() -> &'static Machine {
    static MACHINE: OnceLock<Machine> = OnceLock::new();
    MACHINE.get_or_init(|| {
        let folder = folder(".");
        let sources = [folder.join("machine.cpp"), folder.join("memory.cpp")];
        let path = compile("machine", &[folder], &["-O2"], &sources.each_ref().map(PathBuf::as_path));
        // SAFETY: our own library; the types are those of machine.h. Global, so that kernels find it.
        unsafe {
            let library = Library::open(Some(path), RTLD_NOW | RTLD_GLOBAL).expect("the machine loads");
            Machine {
                alloc: library.get(b"emu_alloc").expect("emu_alloc"),
                free: library.get(b"emu_free").expect("emu_free"),
                protect: library.get(b"emu_protect").expect("emu_protect"),
                launch: library.get(b"emu_launch").expect("emu_launch"),
                one_at_a_time: Mutex::new(()),
                _library: library,
            }
        }
    })
}

impl Machine {
    /// Runs `kernel` on `arguments` with the threads in the order of `seed`.
    ///
    /// # Errors
    /// What the machine found: a race, a missed barrier, memory that is not the kernel's.
    ///
    /// # Safety
    /// The arguments are those of the kernel, and their addresses those of live [`super::memory::Buf`]s.
    pub unsafe fn launch(
        &self,
        kernel: KernelFn,
        launch: &Launch,
        arguments: *const c_void,
        seed: u64,
    ) -> Result<(), String> {
        let _alone = self.one_at_a_time.lock().unwrap_or_else(PoisonError::into_inner);
        let block = [launch.threads, 1, 1];
        // SAFETY: the caller's word; the message is copied before the next launch.
        unsafe {
            let error = (self.launch)(
                kernel,
                arguments,
                launch.grid.as_ptr(),
                block.as_ptr(),
                launch.shared_bytes as usize,
                seed,
            );
            if error.is_null() {
                return Ok(());
            }
            Err(format!("{}: {}", launch.kernel, CStr::from_ptr(error).to_string_lossy()))
        }
    }

    /// Guarded memory, poisoned.
    pub fn alloc(&self, bytes: usize, name: &str, low: bool) -> *mut c_void {
        let _alone = self.one_at_a_time.lock().unwrap_or_else(PoisonError::into_inner);
        let name = CString::new(name).expect("a name without zeros");
        // SAFETY: the name is copied.
        unsafe { (self.alloc)(bytes, name.as_ptr(), low.into()) }
    }
}

/// A folder by its place from this crate.
pub fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

/// Where compiled libraries are kept: beside the programs that use them.
pub fn work_folder() -> PathBuf {
    let program = std::env::current_exe().expect("path of this program");
    let folder = program.parent().expect("a program is in a folder").join("emulated");
    fs::create_dir_all(&folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    folder
}

/// Flags besides our own.
const FLAGS: &str = "FIRSTLIGHT_EMULATION_FLAGS";

/// Compiles a shared library with the system's C++ compiler, once for the same input.
pub fn compile(name: &str, includes: &[PathBuf], flags: &[&str], sources: &[&Path]) -> PathBuf {
    let mut hash = Sha256::new();
    for text in
        includes.iter().flat_map(|folder| files(folder)).chain(sources.iter().map(|path| path.to_path_buf()))
    {
        hash.update(fs::read(&text).unwrap_or_else(|e| panic!("{}: {e}", text.display())));
    }
    let more = std::env::var(FLAGS).unwrap_or_default();
    let flags: Vec<&str> = flags.iter().copied().chain(more.split_whitespace()).collect();
    flags.iter().for_each(|flag| hash.update(flag));
    let hash: String = hash.finalize().iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    let out = work_folder().join(format!("{name}-{hash}.so"));
    if out.exists() {
        return out;
    }
    let aside = out.with_extension(format!("{}.new", std::process::id()));
    let compiler = std::env::var("CXX").unwrap_or_else(|_| "c++".into());
    let mut command = Command::new(&compiler);
    command.args(["-std=c++17", "-fPIC", "-shared", "-Wall", "-Wextra", "-Wno-unknown-pragmas"]);
    command.args(&flags).args(includes.iter().map(|folder| format!("-I{}", folder.display())));
    command.args(["-x", "c++"]).args(sources).arg("-o").arg(&aside);
    let output = command.output().unwrap_or_else(|e| panic!("{compiler}: {e}"));
    assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
    // Tests that run at the same time rename the same bytes into place.
    fs::rename(&aside, &out).expect("the library can be put in place");
    out
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    let mut files: Vec<_> = entries.map(|entry| entry.expect("a file").path()).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "h"));
    files.sort();
    files
}
