//! Names for stretches of time, so that a profiler (`nsys profile`) shows which forward a kernel belongs to.
//!
//! # The contract with the library
//! `nvtxRangePushA` opens a range on the calling thread and copies its name before it returns; `nvtxRangePop` closes
//! the innermost one of that thread. A [`Range`] is closed on the thread that opened it, in the reverse order. Both
//! return at once where no profiler has attached itself.

use std::ffi::{CString, c_char, c_int};
use std::marker::PhantomData;
use std::path::Path;
use std::sync::Arc;

use libloading::os::unix::{RTLD_NOW, Symbol};

use crate::library::Loaded;

/// CUDA 13's name of it, and that of earlier ones.
const LIBRARIES: [&str; 2] = ["libnvtx3interop.so.1", "libnvToolsExt.so.1"];

/// The library is not there, or is another one.
#[derive(Debug, thiserror::Error)]
#[error(
    "cannot load {library}: {reason}; it comes with CUDA and with the package nvidia-nvtx, and only --nvtx needs it"
)]
pub struct NvtxError {
    /// File that was looked for.
    pub library: String,
    /// What the loader says.
    pub reason: String,
}

/// Opens ranges, or does nothing.
#[derive(Default)]
pub struct Ranges(Option<Arc<Functions>>);

struct Functions {
    push: Symbol<unsafe extern "C" fn(*const c_char) -> c_int>,
    pop: Symbol<unsafe extern "C" fn() -> c_int>,
    _library: Loaded<NvtxError>,
}

/// An open range; closed when it is dropped, on the thread that opened it.
#[must_use]
pub struct Range {
    functions: Option<Arc<Functions>>,
    this_thread: PhantomData<*const ()>,
}

impl Ranges {
    /// Nothing is named.
    pub fn off() -> Self {
        Self::default()
    }

    /// Loads the library from where the loader looks.
    ///
    /// # Errors
    /// When it is not there.
    pub fn load() -> Result<Self, NvtxError> {
        let [library, before] = LIBRARIES;
        Self::open(library).or_else(|missing| Self::open(before).map_err(|_| missing))
    }

    fn open(library: &str) -> Result<Self, NvtxError> {
        // SAFETY: its initialiser only looks for a profiler.
        let library = unsafe { Loaded::open(Path::new(library), RTLD_NOW, missing) }?;
        // SAFETY: the types are those of nvToolsExt.h; the library is kept as long as they are.
        let functions = unsafe {
            Functions {
                push: library.function("nvtxRangePushA")?,
                pop: library.function("nvtxRangePop")?,
                _library: library,
            }
        };
        Ok(Self(Some(Arc::new(functions))))
    }

    /// Opens a range; `name` is not asked for where nothing is named.
    pub fn open_range(&self, name: impl FnOnce() -> String) -> Range {
        if let Some(functions) = &self.0 {
            let name = CString::new(name()).unwrap_or_default();
            // SAFETY: a string that ends with 0; the name is copied.
            unsafe { (functions.push)(name.as_ptr()) };
        }
        Range { functions: self.0.clone(), this_thread: PhantomData }
    }
}

impl Drop for Range {
    fn drop(&mut self) {
        if let Some(functions) = &self.functions {
            // SAFETY: it is the innermost range of this thread: ranges cannot leave it.
            unsafe { (functions.pop)() };
        }
    }
}

fn missing(path: &Path, reason: String) -> NvtxError {
    NvtxError { library: path.display().to_string(), reason }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_named_unless_it_is_asked_for() {
        let _range = Ranges::off().open_range(|| unreachable!("nobody reads it"));
    }

    #[test]
    fn a_library_that_is_not_there_is_named() {
        let said = Ranges::open("libnvtx-none.so.1").err().expect("there is none").to_string();
        assert!(said.contains("libnvtx-none.so.1") && said.contains("nvidia-nvtx"), "{said}");
    }

    #[test]
    fn a_library_that_is_another_one_is_refused() {
        let said = Ranges::open("libc.so.6").err().expect("it has no ranges").to_string();
        assert!(said.contains("nvtxRangePushA"), "{said}");
    }
}
