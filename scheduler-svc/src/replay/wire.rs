//! How long hand-overs between the scheduler and an engine take, and those inside of the engine.

use std::time::Duration;

/// Tells the time of each hand-over as it happens.
pub trait HandOvers {
    /// From a round's admission until the engine has it (segment `dispatch`).
    fn dispatch(&mut self) -> Duration;
    /// From a round's arrival at an engine that stands still until its forward starts.
    fn wake(&mut self) -> Duration;
    /// From the start of a forward until the scheduler knows which rounds begin with it.
    fn begun(&mut self) -> Duration;
    /// From the end of a forward until the scheduler has its tokens (segment `return`).
    fn back(&mut self) -> Duration;
    /// Between two forwards of an engine that has more to do.
    fn turnaround(&mut self) -> Duration;
}

/// Hand-overs that always take the same time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wire {
    /// See [`HandOvers::dispatch`].
    pub dispatch: Duration,
    /// See [`HandOvers::wake`].
    pub wake: Duration,
    /// See [`HandOvers::begun`].
    pub begun: Duration,
    /// See [`HandOvers::back`].
    pub back: Duration,
    /// See [`HandOvers::turnaround`].
    pub turnaround: Duration,
}

impl HandOvers for Wire {
    fn dispatch(&mut self) -> Duration {
        self.dispatch
    }

    fn wake(&mut self) -> Duration {
        self.wake
    }

    fn begun(&mut self) -> Duration {
        self.begun
    }

    fn back(&mut self) -> Duration {
        self.back
    }

    fn turnaround(&mut self) -> Duration {
        self.turnaround
    }
}
