//! A module's kernels, compiled for the CPU.

use std::fs;
use std::path::{Path, PathBuf};

use firstlight_cuda::arguments::Arguments;
use firstlight_cuda::launch::Launch;
use firstlight_cuda::source::Module;
use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW, Symbol};

use super::machine::{KernelFn, compile, folder, machine};

pub struct Kernels {
    module: Module,
    library: Library,
}

impl Kernels {
    /// The kernels as they are.
    pub fn build(module: &Module) -> Self {
        Self::build_from(module, &folder("kernels"), &module.name())
    }

    /// The kernels with `edit` made to the text of `file`.
    pub fn build_edited(
        module: &Module,
        file: &str,
        edit: impl FnOnce(String) -> String,
        name: &str,
    ) -> Self {
        let edited = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()));
        fs::create_dir_all(&edited).expect("a folder for the edited sources");
        for entry in fs::read_dir(folder("kernels")).expect("kernels/") {
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
        let includes = [sources.to_owned(), folder("emulate")];
        let path = compile(name, &includes, &["-O1", &number, &head_dim], &[&source]);
        // SAFETY: our own library, without initialisers.
        let library = unsafe { Library::open(Some(path), RTLD_NOW | RTLD_LOCAL) };
        Self { module: *module, library: library.expect("kernels load") }
    }

    pub fn module(&self) -> &Module {
        &self.module
    }

    /// Runs a kernel; the error says what the machine found.
    pub fn launch<A: Arguments>(&self, launch: &Launch, arguments: &A, seed: u64) -> Result<(), String> {
        assert_eq!(launch.family, self.module.family);
        // SAFETY: every kernel has this type; a kernel's name goes with its arguments' type in each check.
        let kernel: Symbol<KernelFn> =
            unsafe { self.library.get(launch.kernel.as_bytes()) }.expect("the kernel");
        // SAFETY: as above; addresses in arguments come from live buffers.
        unsafe { machine().launch(*kernel, launch, arguments, seed) }
    }
}
