//! The breakdown where three processes do not share one clock: another time namespace, a clock that drifts, ways
//! that take longer in one direction than in the other.

mod delays;
mod settings;
mod table;
