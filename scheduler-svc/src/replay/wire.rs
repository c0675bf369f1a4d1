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

#[cfg(test)]
mod tests {
    use firstlight_proto::clock::Stamp;
    use firstlight_sim::cost::CostModel;

    use super::*;
    use crate::{
        admission::{Blocks, Budget, Geometry, Request, Tokens},
        replay::{Arrival, EngineShape, Observer, Story, World},
    };

    const MS: Duration = Duration::from_millis(1);

    #[derive(Default)]
    struct Ended(Vec<Story>);

    impl Observer for Ended {
        fn ended(&mut self, story: &Story) {
            self.0.push(story.clone());
        }
    }

    /// Two requests at once, a round each, to an engine whose forwards take no time.
    fn two(wire: impl HandOvers, admit_ahead: u32) -> Vec<Story> {
        let geometry = Geometry {
            context: Tokens(1024),
            block_size: Tokens(16),
            kv_blocks: Blocks(100),
            free_blocks: Blocks(100),
            max_sequences: 8,
        };
        let budget = Budget { prefill_max_batch_size: 1, admit_ahead, ..Budget::default() };
        let start = Stamp::from_ns(0);
        let mut world = World::new(budget, wire, CostModel::free(), Ended::default(), start).unwrap();
        world.attach(EngineShape { geometry, mixed: false });
        for _ in 0..2 {
            world.offer(Arrival::new(Request::new(Tokens(4), Tokens(1)))).unwrap();
        }
        world.run_out();
        world.into_observer().0
    }

    fn ms(stamp: Stamp) -> i64 {
        stamp.ns() / 1_000_000
    }

    #[test]
    fn every_hand_over_takes_its_time_at_its_place() {
        let wire = Wire { dispatch: MS, wake: 2 * MS, begun: 3 * MS, back: 4 * MS, ..Wire::default() };
        let stories = two(wire, 1);
        let first = stories[0].engine.unwrap();
        assert_eq!((ms(first.received), ms(first.admitted)), (1, 3));
        assert_eq!(stories[0].first_token.map(ms), Some(3 + 4));
        assert_eq!(stories[1].admitted.map(ms), Some(3 + 3), "credit for the next round");
    }

    #[test]
    fn no_message_overtakes_another() {
        struct Quicker(Vec<u32>);
        impl HandOvers for Quicker {
            fn dispatch(&mut self) -> Duration {
                self.0.pop().map_or(MS, |ms| ms * MS)
            }
            fn wake(&mut self) -> Duration {
                MS
            }
            fn begun(&mut self) -> Duration {
                MS
            }
            fn back(&mut self) -> Duration {
                MS
            }
            fn turnaround(&mut self) -> Duration {
                MS
            }
        }
        let stories = two(Quicker(vec![1, 5]), 2);
        let received = |story: &Story| ms(story.engine.unwrap().received);
        assert_eq!(stories.iter().map(received).collect::<Vec<_>>(), [5, 5]);
    }
}
