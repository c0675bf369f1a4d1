//! Runs compared with each other: `bench-client diff` and `bench-client sweep` over live pairs.

mod diff;
mod sweep;
