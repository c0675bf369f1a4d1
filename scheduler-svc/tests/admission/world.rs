//! The replay as the tests of the core use it: requests have numbers, and every story is kept.

use std::collections::HashMap;

use firstlight_proto::clock::Stamp;
use firstlight_sim::cost::CostModel;
use scheduler_svc::{
    admission::{Blocks, Budget, EngineId, Geometry, Key, Refused, Request, Round, Tokens, Waited},
    replay::{self, Arrival, EngineShape, Observer, Story, Wire},
};

pub const MS: i64 = 1_000_000;
pub const SECOND: i64 = 1_000 * MS;

/// Forwards of a fixed part, a part per prompt token and a part per decoding row, µs.
pub fn cost(forward: f64, prompt_token: f64, decode_row: f64) -> CostModel {
    CostModel {
        prefill_base_us: forward,
        prefill_row_us: 0.0,
        prefill_token_us: prompt_token,
        prefill_attend_us: 0.0,
        decode_base_us: forward,
        decode_row_us: decode_row,
        decode_attend_us: 0.0,
        buckets: Vec::new(),
        scale: 1.0,
    }
}

/// All that happened.
#[derive(Default)]
pub struct Seen {
    rounds: Vec<(i64, EngineId, Vec<Key>)>,
    first_admissions: HashMap<Key, (i64, Waited)>,
    ended: HashMap<Key, Story>,
    gaps: Vec<i64>,
}

impl Observer for Seen {
    fn round(&mut self, round: &Round) {
        let keys = round.batch.iter().map(|admitted| admitted.key).collect();
        self.rounds.push((round.at.ns(), round.engine, keys));
        for admitted in &round.batch {
            self.first_admissions.entry(admitted.key).or_insert((round.at.ns(), admitted.waited));
        }
    }

    fn token(&mut self, _story: &Story, gap: Option<i64>) {
        self.gaps.extend(gap);
    }

    fn ended(&mut self, story: &Story) {
        self.ended.insert(story.key, story.clone());
    }
}

pub struct World {
    replay: replay::World<CostModel, Seen>,
    /// Requests that were queued, by number.
    pub requests: Vec<(Key, Request, i64)>,
    pub refused: Vec<Refused>,
    numbers: HashMap<Key, usize>,
}

impl World {
    pub fn new(budget: Budget, cost: CostModel, wire: Wire) -> Self {
        let replay = replay::World::new(budget, wire, cost, Seen::default(), Stamp::from_ns(0)).unwrap();
        Self { replay, requests: Vec::new(), refused: Vec::new(), numbers: HashMap::new() }
    }

    pub fn attach(&mut self, kv_blocks: u32) -> EngineId {
        let geometry = Geometry {
            context: Tokens(4_096),
            block_size: Tokens(16),
            kv_blocks: Blocks(kv_blocks),
            free_blocks: Blocks(kv_blocks),
            max_sequences: 1_024,
        };
        self.replay.attach(EngineShape { geometry, mixed: false })
    }

    pub fn drain(&mut self, engine: EngineId) {
        self.replay.drain(engine);
    }

    pub fn lose(&mut self, engine: EngineId) {
        self.replay.lose(engine);
    }

    /// Offers a request now; its number, unless it is refused.
    pub fn offer(&mut self, request: Request) -> Option<usize> {
        let number = self.requests.len();
        match self.replay.offer(Arrival::new(request)) {
            Ok(key) => {
                self.numbers.insert(key, number);
                self.requests.push((key, request, self.now()));
                Some(number)
            }
            Err(refused) => {
                self.refused.push(refused);
                None
            }
        }
    }

    pub fn set_budget(&mut self, budget: Budget) {
        self.replay.set_budget(budget).unwrap();
    }

    pub fn run_until(&mut self, until: i64) {
        self.replay.run_until(Stamp::from_ns(until));
    }

    /// Lets time pass until nothing lies ahead.
    pub fn run_out(&mut self) {
        self.replay.run_out();
    }

    pub fn now(&self) -> i64 {
        self.replay.now().ns()
    }

    pub fn replay(&self) -> &replay::World<CostModel, Seen> {
        &self.replay
    }

    /// The story of a request that has ended.
    pub fn story(&self, number: usize) -> &Story {
        let (key, request, _) = &self.requests[number];
        let ended = &self.replay.observer().ended;
        ended.get(key).unwrap_or_else(|| panic!("request {number} never ended: {request:?}"))
    }

    pub fn stories(&self) -> impl Iterator<Item = &Story> {
        (0..self.requests.len()).map(|number| self.story(number))
    }

    /// When a request was first admitted, and its wait until then.
    pub fn first_admission(&self, number: usize) -> Option<(i64, Waited)> {
        self.replay.observer().first_admissions.get(&self.requests[number].0).copied()
    }

    /// Every round: when, and which requests.
    pub fn rounds(&self) -> Vec<(i64, Vec<usize>)> {
        let numbered = |keys: &Vec<Key>| keys.iter().map(|key| self.numbers[key]).collect();
        self.replay.observer().rounds.iter().map(|(at, _, keys)| (*at, numbered(keys))).collect()
    }

    /// The engine of every round.
    pub fn engines(&self) -> Vec<EngineId> {
        self.replay.observer().rounds.iter().map(|(_, engine, _)| *engine).collect()
    }

    /// Share of times between tokens that are longer than `ns`.
    pub fn long_gaps(&self, ns: i64) -> f64 {
        let gaps = &self.replay.observer().gaps;
        gaps.iter().filter(|gap| **gap > ns).count() as f64 / gaps.len().max(1) as f64
    }
}

/// A plain generator of numbers: the same in every run.
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }
}
