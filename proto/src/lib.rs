//! The wire contract and the types all three programs share.
