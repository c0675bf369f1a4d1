//! Shared libraries that are loaded when they are needed.

use std::error::Error as _;

use libloading::Error;

/// What the loader itself says: the library's own message is only which call failed.
pub(crate) fn reason(error: &Error) -> String {
    error.source().map_or_else(|| error.to_string(), ToString::to_string)
}
