//! Compiled modules on disk, so that only the first start on a kind of card compiles.
//!
//! A file's name says what it was made from: module, architecture, compiler, and the hash of the sources. A file
//! begins with the hash of what follows: one that was cut short is made again.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use crate::nvrtc::{Architecture, NvrtcError};
use crate::source::Module;

/// The compiler that [`crate::nvrtc`] loads, as files are named after it.
pub const COMPILER: &str = "nvrtc-13.0";

const HASH_BYTES: usize = 32;

/// A folder of compiled modules.
#[derive(Debug, Clone)]
pub struct Cache {
    folder: PathBuf,
    compiler: String,
}

impl Cache {
    /// In `folder`, which is made when something is kept; `compiler` names the compiler and its version.
    pub fn new(folder: &Path, compiler: &str) -> Self {
        Self { folder: folder.to_owned(), compiler: compiler.to_owned() }
    }

    /// The module's machine code: kept from before, or what `compile` makes, which is then kept.
    ///
    /// A folder that cannot be written to costs the next start its time, and is no error.
    ///
    /// # Errors
    /// Those of `compile`.
    pub fn get(
        &self,
        module: &Module,
        architecture: Architecture,
        compile: impl FnOnce() -> Result<Vec<u8>, NvrtcError>,
    ) -> Result<Vec<u8>, NvrtcError> {
        let path = self.path(module, architecture);
        if let Some(cubin) = read(&path) {
            return Ok(cubin);
        }
        let cubin = compile()?;
        // Not being able to keep it is no reason not to serve.
        let _ = self.keep(&path, &cubin);
        Ok(cubin)
    }

    fn path(&self, module: &Module, architecture: Architecture) -> PathBuf {
        let fingerprint = &module.fingerprint()[..16];
        self.folder.join(format!("{}.{architecture}.{}.{fingerprint}.cubin", module.name(), self.compiler))
    }

    fn keep(&self, path: &Path, cubin: &[u8]) -> io::Result<()> {
        fs::create_dir_all(&self.folder)?;
        // Two engines may start at once: each renames a file of its own into place.
        let aside = path.with_extension(format!("{}.new", std::process::id()));
        let mut bytes = Sha256::digest(cubin).to_vec();
        bytes.extend_from_slice(cubin);
        fs::write(&aside, bytes)?;
        fs::rename(&aside, path)
    }
}

fn read(path: &Path) -> Option<Vec<u8>> {
    let bytes = fs::read(path).ok()?;
    let (hash, cubin) = bytes.split_at_checked(HASH_BYTES)?;
    (Sha256::digest(cubin).as_slice() == hash).then(|| cubin.to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::{Family, Number};

    const MODULE: Module = Module { family: Family::Norm, number: Number::Bf16, head_dim: 64 };
    const HOPPER: Architecture = Architecture { sm: 90 };

    /// A folder of this test's own, gone when it ends.
    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let folder = std::env::temp_dir().join(format!("firstlight-cuda-{name}-{}", std::process::id()));
            Self(folder)
        }

        fn cache(&self, compiler: &str) -> Cache {
            Cache::new(&self.0, compiler)
        }

        fn only_file(&self) -> PathBuf {
            let mut files = fs::read_dir(&self.0).unwrap().map(|entry| entry.unwrap().path());
            let file = files.next().expect("a file");
            assert!(files.next().is_none(), "one file, nothing left aside");
            file
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn never() -> Result<Vec<u8>, NvrtcError> {
        panic!("compiled again")
    }

    #[test]
    fn a_module_is_compiled_once() {
        let folder = Folder::new("once");
        let cache = folder.cache("nvrtc-13.0");
        let first = cache.get(&MODULE, HOPPER, || Ok(b"code".to_vec())).unwrap();
        assert_eq!(
            (first.as_slice(), cache.get(&MODULE, HOPPER, never).unwrap().as_slice()),
            (&b"code"[..], &b"code"[..])
        );
    }

    #[test]
    fn another_card_or_compiler_is_another_module() {
        let folder = Folder::new("other");
        folder.cache("nvrtc-13.0").get(&MODULE, HOPPER, || Ok(b"code".to_vec())).unwrap();
        let other_card = Architecture { sm: 100 };
        let other = folder.cache("nvrtc-13.0").get(&MODULE, other_card, || Ok(b"other".to_vec())).unwrap();
        let newer = folder.cache("nvrtc-13.1").get(&MODULE, HOPPER, || Ok(b"newer".to_vec())).unwrap();
        assert_eq!((other.as_slice(), newer.as_slice()), (&b"other"[..], &b"newer"[..]));
    }

    #[test]
    fn a_file_that_was_cut_short_is_made_again() {
        let folder = Folder::new("short");
        let cache = folder.cache("nvrtc-13.0");
        cache.get(&MODULE, HOPPER, || Ok(b"machine code".to_vec())).unwrap();
        let file = folder.only_file();
        let whole = fs::read(&file).unwrap();
        for len in [0, 10, whole.len() - 1] {
            fs::write(&file, &whole[..len]).unwrap();
            assert_eq!(cache.get(&MODULE, HOPPER, || Ok(b"again".to_vec())).unwrap(), b"again");
            fs::write(&file, &whole).unwrap();
        }
    }

    #[test]
    fn a_folder_that_cannot_be_written_to_is_no_error() {
        let cache = Cache::new(Path::new("/proc/nowhere"), "nvrtc-13.0");
        assert_eq!(cache.get(&MODULE, HOPPER, || Ok(b"code".to_vec())).unwrap(), b"code");
    }

    #[test]
    fn a_module_that_does_not_compile_leaves_nothing() {
        let folder = Folder::new("broken");
        let cache = folder.cache("nvrtc-13.0");
        let refuse = || Err(NvrtcError::Call { call: "nvrtcCompileProgram", reason: "no".into() });
        assert!(cache.get(&MODULE, HOPPER, refuse).is_err());
        assert!(!folder.0.exists());
    }
}
