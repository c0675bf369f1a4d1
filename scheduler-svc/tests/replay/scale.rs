//! The production core, and a planner for each engine, at sizes that no machine at hand can serve.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use firstlight_proto::clock::{Clock, Stamp};
use firstlight_sim::cost::CostModel;
use scheduler_svc::{
    admission::{Blocks, Budget, Geometry, Request, Tokens},
    replay::{Arrival, EngineShape, Observer, Story, Wire, World},
};

const SECOND: i64 = 1_000_000_000;

#[derive(Default)]
struct Tally {
    ended: u64,
    finished: u64,
    tokens: u64,
    ttft: i128,
    waits_that_do_not_add_up: u64,
    /// Of every stamp, in order: equal only where everything is.
    fingerprint: DefaultHasher,
}

impl Observer for Tally {
    fn ended(&mut self, story: &Story) {
        self.ended += 1;
        self.finished += u64::from(story.finished());
        self.tokens += u64::from(story.tokens.0);
        if let (Some(first), Some(admitted)) = (story.first_token, story.admitted) {
            self.ttft += i128::from(first.since(story.queued));
            let off = story.waited.by_cause.total() != admitted.since(story.queued);
            self.waits_that_do_not_add_up += u64::from(off);
        }
        (story.queued.ns(), story.admitted.map(Stamp::ns), story.first_token.map(Stamp::ns))
            .hash(&mut self.fingerprint);
    }
}

/// The same numbers in every run.
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }
}

/// `requests` in bursts, at `rate` per second and engine on average, most of it in every fourth second.
fn run(engines: u32, requests: u64, rate: u64) -> Tally {
    let budget = Budget {
        max_active_requests: 48 * engines,
        max_pending: u32::try_from(requests).unwrap(),
        prefill_max_batch_size: 8,
        ..Budget::default()
    };
    let wire = Wire {
        dispatch: std::time::Duration::from_micros(150),
        wake: std::time::Duration::from_micros(50),
        begun: std::time::Duration::from_micros(100),
        back: std::time::Duration::from_micros(100),
        turnaround: std::time::Duration::from_micros(30),
    };
    let start = Stamp::from_ns(0);
    let mut world = World::new(budget, wire, CostModel::default(), Tally::default(), start).unwrap();
    let geometry = Geometry {
        context: Tokens(4096),
        block_size: Tokens(16),
        kv_blocks: Blocks(2560),
        free_blocks: Blocks(2560),
        max_sequences: 256,
    };
    for _ in 0..engines {
        world.attach(EngineShape { geometry, mixed: false });
    }
    let mut random = Random(11);
    let (mut at, mut most_in_flight) = (0, 0);
    for i in 0..requests {
        let per_second = rate * u64::from(engines);
        let burst = at / SECOND % 4 == 0;
        let gap = 2 * SECOND as u64 / per_second;
        at += random.below(if burst { gap / 2 } else { gap * 3 / 2 } + 1) as i64;
        world.run_until(Stamp::from_ns(at));
        let request =
            Request::new(Tokens(16 + random.below(240) as u32), Tokens(16 + random.below(96) as u32));
        world.offer(Arrival::new(request)).unwrap_or_else(|refused| panic!("request {i}: {refused}"));
        most_in_flight = most_in_flight.max(world.in_flight());
    }
    world.run_out();
    println!(
        "{engines} engines, {requests} requests in {:.0} s of traffic, at most {most_in_flight} in flight",
        at as f64 / SECOND as f64
    );
    world.into_observer()
}

fn check(tally: &Tally, requests: u64) {
    assert_eq!((tally.ended, tally.finished), (requests, requests));
    assert_eq!(tally.waits_that_do_not_add_up, 0);
}

#[test]
fn a_hundred_engines_serve_twenty_thousand_requests_the_same_way_twice() {
    let first = run(100, 20_000, 40);
    check(&first, 20_000);
    let again = run(100, 20_000, 40);
    assert_eq!(first.fingerprint.finish(), again.fingerprint.finish());
}

#[test]
#[ignore = "a minute of computing: make test-long"]
fn a_thousand_engines_serve_a_million_requests() {
    let clock = Clock::new();
    let started = clock.now();
    let tally = run(1_000, 1_000_000, 40);
    let took = clock.now().saturating_since(started);
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap_or("?").trim();
    println!(
        "{:.1} s on one core, peak memory {peak}; {} tokens, mean TTFT {:.1} ms",
        took.as_secs_f64(),
        tally.tokens,
        tally.ttft as f64 / tally.finished as f64 / 1e6
    );
    check(&tally, 1_000_000);
}
