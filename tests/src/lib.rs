//! Harness of the end-to-end tests: real processes, real sockets, real model, all on loopback.
//!
//! - [`assets`]: the programs under test, the model, the golden files
//! - [`service`]: one running process; it ends with the test
//! - [`pair`]: engines and a scheduler wired together
//! - [`relay`]: a way between two processes that a test can cut, and that can be long
//! - [`time_namespace`]: services whose clock is not this machine's
//! - [`client`]: requests to the pair, and what came back
//! - [`pki`]: certificates for one test
//! - [`bench`]: runs of `bench-client` against a pair
//! - [`chain`]: what its results say of the segments
//! - [`scrape`]: metrics of a service
//! - [`wait`]: bounded waiting

pub mod assets;
pub mod bench;
pub mod chain;
pub mod client;
pub mod pair;
pub mod pki;
pub mod relay;
pub mod scrape;
pub mod service;
pub mod time_namespace;
pub mod wait;
