//! Firstlight engine: token ids in, token ids out, over one Attach stream per scheduler

pub mod backend;
pub mod sample;
