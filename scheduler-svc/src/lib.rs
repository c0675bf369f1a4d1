//! Firstlight scheduler: pending queue, admission budget, tokens and text, streaming to clients

pub mod admission;
