//! The pair in virtual time.

/// Sizes that no machine at hand can serve.
mod scale;
