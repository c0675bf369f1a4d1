//! The scheduler over real sockets, with real engines on the sim backend.

mod bad_input;
mod budget;
mod cancel;
mod drain;
mod explain;
mod harness;
mod inject;
mod lifecycle;
mod relay;
mod replay;
mod resume;
mod shadow;
mod shared;
mod spans;
mod streaming;
