//! The whole pair in virtual time: the production admission core, driven as [`dispatch`](crate::dispatch) drives
//! it, in front of engines that run the live step planner at the speed of a cost model. Nothing sleeps, reads a
//! clock or does I/O, and the same arrivals give the same story on every machine.
//!
//! - [`world`]: the scheduler's side: arrivals, rounds, reports, ends
//! - [`engine`]: one attachment: inbox, forwards, what it reports
//! - `messages`: what happens: messages that arrive, forwards that end
//! - [`wire`]: how long hand-overs take
//! - [`events`]: what is going to happen, in order of time
//! - [`request`]: what arrives, and the story of what became of it

pub mod engine;
pub mod events;
mod messages;
pub mod request;
pub mod wire;
pub mod world;

pub use engine::EngineShape;
pub use request::{Arrival, Ending, Prompt, Story};
pub use wire::{HandOvers, Wire};
pub use world::{Observer, World};
