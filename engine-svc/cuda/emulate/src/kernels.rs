//! A module's kernels, compiled for the CPU.

use std::fs;
use std::path::{Path, PathBuf};

use firstlight_cuda::arguments::Arguments;
use firstlight_cuda::launch::Launch;
use firstlight_cuda::source::Module;
use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW, Symbol};

use crate::machine::{KernelFn, compile, folder, machine, work_folder};

/// Their sources, from this crate.
const KERNELS: &str = "../kernels";

/// The kernels of one module.
#[derive(Debug)]
pub struct Kernels {
    module: Module,
    library: Library,
}

impl Kernels {
    /// The kernels as they are.
    pub fn build(module: &Module) -> Self {
        Self::build_from(module, &folder(KERNELS), &module.name())
    }

    /// The kernels with `edit` made to the text of `file`.
    pub fn build_edited(
        module: &Module,
        file: &str,
        edit: impl FnOnce(String) -> String,
        name: &str,
    ) -> Self {
        let edited = work_folder().join(format!("{name}-{}", std::process::id()));
        fs::create_dir_all(&edited).expect("a folder for the edited sources");
        for entry in fs::read_dir(folder(KERNELS)).expect("kernels/") {
            let path = entry.expect("a file").path();
            fs::copy(&path, edited.join(path.file_name().expect("a name"))).expect("a copy");
        }
        let path = edited.join(file);
        fs::write(&path, edit(fs::read_to_string(&path).expect("text"))).expect("the edited file");
        let kernels = Self::build_from(module, &edited, name);
        let _ = fs::remove_dir_all(&edited);
        kernels
    }

    fn build_from(module: &Module, sources: &Path, name: &str) -> Self {
        machine();
        let [number, head_dim] = module.defines();
        let source: PathBuf = sources.join(format!("{}.cu", module.family.name()));
        let includes = [sources.to_owned(), folder(".")];
        let path = compile(name, &includes, &["-O1", &number, &head_dim], &[&source]);
        // SAFETY: our own library, without initialisers.
        let library = unsafe { Library::open(Some(path), RTLD_NOW | RTLD_LOCAL) };
        Self { module: *module, library: library.expect("kernels load") }
    }

    /// Which module it is.
    pub fn module(&self) -> &Module {
        &self.module
    }

    /// Runs a kernel with its threads in the order of `seed`.
    ///
    /// # Errors
    /// What the machine found.
    ///
    /// # Panics
    /// When the module has no such kernel.
    pub fn launch<A: Arguments>(&self, launch: &Launch, arguments: &A, seed: u64) -> Result<(), String> {
        // SAFETY: a kernel's name goes with its arguments' type in each check; addresses come from live buffers.
        unsafe { machine().launch(self.kernel(launch), launch, (&raw const *arguments).cast(), seed) }
    }

    pub(crate) fn kernel(&self, launch: &Launch) -> KernelFn {
        assert_eq!(launch.family, self.module.family);
        // SAFETY: every kernel has this type.
        let kernel: Symbol<KernelFn> =
            unsafe { self.library.get(launch.kernel.as_bytes()) }.expect("the kernel");
        *kernel
    }
}
