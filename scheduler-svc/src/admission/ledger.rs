//! The blocked-time ledger: every nanosecond a request is pending is charged to exactly one cause.
//!
//! Requests do not carry stopwatches. They follow *clocks*, each of which runs on one cause at a time:
//! a lane's clock runs on the lane's cut, the newcomers' clock on `engine_busy` or `no_engine`, and a
//! standing clock for each cause runs on that cause forever. A request notes what its clock showed when it
//! began to follow it; the difference is its wait by cause. So a round costs one switch per lane, however
//! many requests wait in it, and the causes of a request sum to its wait to the nanosecond, because
//! every clock always runs on exactly one cause.

use firstlight_proto::clock::Stamp;

use super::cause::{ByCause, Cause};

/// A cumulative clock per cause, of which exactly one runs.
#[derive(Clone, Debug)]
pub(super) struct CauseClock {
    shown: ByCause,
    running: Cause,
    since: Stamp,
}

impl CauseClock {
    /// A clock that shows zero and runs on `cause` from `now`.
    pub fn new(cause: Cause, now: Stamp) -> Self {
        Self { shown: ByCause::default(), running: cause, since: now }
    }

    /// What it shows.
    pub fn at(&self, now: Stamp) -> ByCause {
        let mut shown = self.shown;
        shown[self.running] += now.since(self.since);
        shown
    }

    /// The cause it runs on.
    pub fn running(&self) -> Cause {
        self.running
    }

    /// Lets it run on `cause` from `now`.
    pub fn switch(&mut self, now: Stamp, cause: Cause) {
        self.shown = self.at(now);
        self.since = now;
        self.running = cause;
    }
}

/// Which clock a pending request follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Follow {
    /// The newcomers' clock, until the first round with credit; its index among the newcomers.
    Newcomers(u32),
    /// Its lane's clock.
    Lane,
    /// A standing clock: a `pack` lookahead examined it, in that round last, and passed it over for this cause.
    Alone { cause: Cause, round: u32 },
}

/// The clocks that belong to no lane, and the time blocked over all requests.
#[derive(Debug)]
pub(super) struct Ledger {
    newcomers: CauseClock,
    standing: ByCause<Stamp>,
    blocked: Blocked,
}

impl Ledger {
    pub fn new(now: Stamp) -> Self {
        let standing = ByCause::filled(now);
        Self { newcomers: CauseClock::new(Cause::NoEngine, now), standing, blocked: Blocked::new(now) }
    }

    /// What the clock that `follow` names shows; `lane` is the clock of the request's lane.
    pub fn shown(&self, follow: Follow, lane: &CauseClock, now: Stamp) -> ByCause {
        match follow {
            Follow::Newcomers(_) => self.newcomers.at(now),
            Follow::Lane => lane.at(now),
            Follow::Alone { cause, .. } => {
                let mut shown = ByCause::default();
                shown[cause] = now.since(self.standing[cause]);
                shown
            }
        }
    }

    /// The cause charged now to a request that follows `follow`.
    pub fn charged(&self, follow: Follow, lane: &CauseClock) -> Cause {
        match follow {
            Follow::Newcomers(_) => self.newcomers.running(),
            Follow::Lane => lane.running(),
            Follow::Alone { cause, .. } => cause,
        }
    }

    /// Lets the newcomers' clock, followed by `newcomers` requests, run on `cause`.
    pub fn switch_newcomers(&mut self, now: Stamp, cause: Cause, newcomers: usize) {
        self.blocked.shift(now, self.newcomers.running(), cause, newcomers);
        self.newcomers.switch(now, cause);
    }

    /// Time blocked over all requests.
    pub fn blocked(&mut self) -> &mut Blocked {
        &mut self.blocked
    }

    /// Time blocked by cause over all requests that are or were pending, ns: advances while they wait.
    pub fn blocked_at(&self, now: Stamp) -> ByCause<u128> {
        self.blocked.at(now)
    }
}

/// Time blocked over all requests, by cause: elapsed × the number of requests charged, live.
#[derive(Debug)]
pub(super) struct Blocked {
    total: ByCause<u128>,
    charged: ByCause<u64>,
    since: Stamp,
}

impl Blocked {
    fn new(now: Stamp) -> Self {
        Self { total: ByCause::filled(0), charged: ByCause::filled(0), since: now }
    }

    fn at(&self, now: Stamp) -> ByCause<u128> {
        let elapsed = u128::try_from(now.since(self.since)).unwrap_or(0);
        let mut total = self.total;
        for cause in Cause::ALL {
            total[cause] += elapsed * u128::from(self.charged[cause]);
        }
        total
    }

    fn settle(&mut self, now: Stamp) {
        if now > self.since {
            self.total = self.at(now);
            self.since = now;
        }
    }

    /// One more request is charged `cause`.
    pub fn enter(&mut self, now: Stamp, cause: Cause) {
        self.settle(now);
        self.charged[cause] += 1;
    }

    /// One request fewer is charged `cause`.
    pub fn leave(&mut self, now: Stamp, cause: Cause) {
        self.settle(now);
        self.charged[cause] -= 1;
    }

    /// `requests` are charged `to` instead of `from`.
    pub fn shift(&mut self, now: Stamp, from: Cause, to: Cause, requests: usize) {
        if from != to && requests > 0 {
            self.settle(now);
            self.charged[from] -= requests as u64;
            self.charged[to] += requests as u64;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ns: i64) -> Stamp {
        Stamp::from_ns(ns)
    }

    #[test]
    fn a_clock_charges_each_stretch_to_the_cause_it_ran_on() {
        let mut clock = CauseClock::new(Cause::BatchSize, at(10));
        clock.switch(at(15), Cause::MaxActive);
        clock.switch(at(18), Cause::BatchSize);
        let shown = clock.at(at(20));
        assert_eq!((shown[Cause::BatchSize], shown[Cause::MaxActive]), (7, 3));
        assert_eq!(shown.total(), 10);
    }

    #[test]
    fn blocked_time_advances_with_the_number_of_requests_charged() {
        let mut blocked = Blocked::new(at(0));
        blocked.enter(at(0), Cause::KvBlocks);
        blocked.enter(at(10), Cause::KvBlocks);
        blocked.shift(at(20), Cause::KvBlocks, Cause::NoEngine, 2);
        blocked.leave(at(25), Cause::NoEngine);
        let total = blocked.at(at(100));
        assert_eq!((total[Cause::KvBlocks], total[Cause::NoEngine]), (30, 85));
    }
}
