//! How the pair behaves: real processes and sockets over the `sim` backend, whose tokens are deterministic and
//! whose forwards take as long as told.

mod admin;
mod bad_input;
mod departures;
mod engines;
mod metrics;
mod request_ids;
mod resume;
mod shutdown;
