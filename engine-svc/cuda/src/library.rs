//! Shared libraries that are loaded when they are needed.

use std::error::Error as _;
use std::ffi::c_int;
use std::path::{Path, PathBuf};

use libloading::Error;
use libloading::os::unix::{Library, Symbol};

/// A library, and what is said when it, or something in it, is missing: its file, and the loader's reason.
pub(crate) struct Loaded<E> {
    library: Library,
    path: PathBuf,
    missing: fn(&Path, String) -> E,
}

impl<E> Loaded<E> {
    /// Loads `path`, with the loader's flags.
    ///
    /// # Errors
    /// When it is not there.
    ///
    /// # Safety
    /// Its initialisers may run here.
    pub(crate) unsafe fn open(path: &Path, flags: c_int, missing: fn(&Path, String) -> E) -> Result<Self, E> {
        // SAFETY: the caller vouches for it.
        let library = unsafe { Library::open(Some(path), flags) };
        let library = library.map_err(|error| missing(path, reason(&error)))?;
        Ok(Self { library, path: path.to_owned(), missing })
    }

    /// A function.
    ///
    /// # Errors
    /// When the library has none of that name.
    ///
    /// # Safety
    /// `T` is its type; it is not called once the library is gone.
    pub(crate) unsafe fn function<T>(&self, name: &str) -> Result<Symbol<T>, E> {
        // SAFETY: the caller vouches for the type.
        let symbol = unsafe { self.library.get(name.as_bytes()) };
        symbol.map_err(|error| (self.missing)(&self.path, reason(&error)))
    }
}

/// What the loader itself says: the library's own message is only which call failed.
fn reason(error: &Error) -> String {
    error.source().map_or_else(|| error.to_string(), ToString::to_string)
}
