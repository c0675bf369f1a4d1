//! The whole real path: real weights, real text, real processes and sockets.

mod answers;
mod start;
mod text;
