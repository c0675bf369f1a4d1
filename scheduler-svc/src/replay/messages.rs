//! What happens in a replay: messages that arrive, forwards that end, deadlines that pass.

use firstlight_proto::clock::Stamp;

use super::engine::{Place, Step};
use crate::admission::{EngineId, EngineLimits, Key};

/// Something that lies ahead.
#[derive(Debug)]
pub(super) enum Event {
    /// A message reaches an engine.
    Down(EngineId, Down),
    /// An engine's forward ends.
    ForwardEnds(EngineId),
    /// An engine is ready for its next forward.
    Turn(EngineId),
    /// A message reaches the scheduler.
    Up(EngineId, Up),
    /// A request's deadline passes.
    Deadline(Key),
}

/// What the scheduler says to an engine.
#[derive(Debug)]
pub(super) enum Down {
    Admit { seq: u64, batch: Vec<Place> },
    Cancel(Place),
    SetLimits(EngineLimits),
}

/// What an engine says to the scheduler.
#[derive(Debug)]
pub(super) enum Up {
    Begun(u64),
    Step(Box<Step>),
}

/// When the last message of each direction of an attachment arrives: none overtakes another.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stream {
    down: Stamp,
    up: Stamp,
}

impl Stream {
    /// A stream that is open from `now` on.
    pub fn new(now: Stamp) -> Self {
        Self { down: now, up: now }
    }

    /// When a message to the engine arrives that would, alone, arrive `at`.
    pub fn down(&mut self, at: Stamp) -> Stamp {
        self.down = self.down.max(at);
        self.down
    }

    /// The same of one to the scheduler.
    pub fn up(&mut self, at: Stamp) -> Stamp {
        self.up = self.up.max(at);
        self.up
    }
}
