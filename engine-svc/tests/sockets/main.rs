//! The engine over real sockets, on the sim backend.

mod attach;
mod bad_input;
mod harness;
mod kv;
mod lifecycle;
mod process;
mod readers;
mod telemetry;
mod timeline;
