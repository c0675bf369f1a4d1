//! A world in virtual time for the admission core: engines that batch continuously at a modelled cost, and
//! a loop that lets arrivals and steps happen in order. Nothing sleeps.

use std::collections::{HashMap, VecDeque};

use firstlight_proto::clock::Stamp;
use scheduler_svc::admission::{
    Admission, Blocks, Budget, End, EngineId, Forward, Geometry, Key, Refused, Report, Request, Round, Row,
    Step, Tokens, Waited,
};

pub const MS: i64 = 1_000_000;
pub const SECOND: i64 = 1_000 * MS;

/// Time of a forward: a fixed part, a part per prompt token and a part per decoding row, ns.
#[derive(Clone, Copy)]
pub struct Cost {
    pub step: i64,
    pub per_prompt_token: i64,
    pub per_row: i64,
}

struct Sequence {
    key: Key,
    to_prefill: u32,
    positions: u32,
    left: u32,
    admitted: u64,
}

struct Engine {
    id: EngineId,
    geometry: Geometry,
    inbox: VecDeque<Round>,
    /// In order of admission.
    running: Vec<Sequence>,
    last_seq: u64,
    step: Option<(i64, Step)>,
}

/// What became of a request.
#[derive(Clone, Debug, Default)]
pub struct Story {
    pub request: Option<Request>,
    pub queued: i64,
    /// The wait of its first admission, and when that was.
    pub first_admission: Option<(i64, Waited)>,
    pub tokens: u32,
    pub finished: Option<i64>,
    pub turned_away: bool,
    pub preemptions: u32,
}

pub struct World {
    pub now: i64,
    pub core: Admission,
    pub stories: Vec<Story>,
    pub refused: Vec<Refused>,
    /// Every round: when, and which requests.
    pub rounds: Vec<(i64, Vec<usize>)>,
    pub most_allocated: u32,
    pub cost: Cost,
    /// Time of every forward that decoded, ns.
    gaps: Vec<i64>,
    numbers: HashMap<Key, usize>,
    engines: Vec<Engine>,
    attachments: u64,
    admissions: u64,
}

impl World {
    pub fn new(budget: Budget, cost: Cost) -> Self {
        Self {
            now: 0,
            core: Admission::new(budget, Stamp::from_ns(0)).unwrap(),
            stories: Vec::new(),
            refused: Vec::new(),
            rounds: Vec::new(),
            most_allocated: 0,
            cost,
            gaps: Vec::new(),
            numbers: HashMap::new(),
            engines: Vec::new(),
            attachments: 0,
            admissions: 0,
        }
    }

    pub fn attach(&mut self, kv_blocks: u32) -> EngineId {
        self.attachments += 1;
        let id = EngineId(self.attachments);
        let geometry = Geometry {
            context: Tokens(4_096),
            block_size: Tokens(16),
            kv_blocks: Blocks(kv_blocks),
            free_blocks: Blocks(kv_blocks),
            max_sequences: 1_024,
        };
        self.core.observe(self.stamp(), Report::Attached { engine: id, geometry });
        let (inbox, running) = (VecDeque::new(), Vec::new());
        self.engines.push(Engine { id, geometry, inbox, running, last_seq: 0, step: None });
        self.plan();
        id
    }

    pub fn lose(&mut self, engine: EngineId) {
        self.engines.retain(|e| e.id != engine);
        self.core.observe(self.stamp(), Report::Lost { engine });
        self.plan();
    }

    /// Offers a request now; its number, unless it is refused.
    pub fn offer(&mut self, request: Request) -> Option<usize> {
        let queued = match self.core.offer(self.stamp(), request) {
            Ok(queued) => queued,
            Err(refused) => {
                self.refused.push(refused);
                return None;
            }
        };
        self.numbers.insert(queued.key, self.stories.len());
        self.stories.push(Story { request: Some(request), queued: self.now, ..Story::default() });
        self.plan();
        Some(self.stories.len() - 1)
    }

    pub fn set_budget(&mut self, budget: Budget) {
        self.core.set_budget(self.stamp(), budget).unwrap();
        self.plan();
    }

    /// Lets time pass until `until`, or until nothing happens any more.
    pub fn run_until(&mut self, until: i64) {
        loop {
            let next =
                self.engines.iter().enumerate().filter_map(|(i, e)| Some((e.step.as_ref()?.0, i))).min();
            let Some((at, engine)) = next.filter(|(at, _)| *at <= until) else { break };
            self.now = at;
            let (_, step) = self.engines[engine].step.take().expect("it is the next to end");
            self.end(step);
            self.plan();
        }
        self.now = self.now.max(until);
    }

    /// Share of decode forwards that took longer than `ns`.
    pub fn long_steps(&self, ns: i64) -> f64 {
        let long = self.gaps.iter().filter(|gap| **gap > ns).count();
        long as f64 / self.gaps.len().max(1) as f64
    }

    fn stamp(&self) -> Stamp {
        Stamp::from_ns(self.now)
    }

    fn plan(&mut self) {
        let now = self.stamp();
        self.send_rounds();
        for away in self.core.turn_away(now) {
            self.stories[self.numbers[&away.key]].turned_away = true;
        }
        self.begin_steps();
    }

    /// Idle engines with work begin a step: the first round leaves the inbox if the chunk has room for it
    /// (the next one is still on its way), then one forward runs.
    fn begin_steps(&mut self) {
        for i in 0..self.engines.len() {
            if self.engines[i].step.is_some() {
                continue;
            }
            let waiting: u32 = self.engines[i].running.iter().map(|s| s.to_prefill).sum();
            if waiting < self.core.engine_limits().step_prefill_tokens.0
                && let Some(round) = self.engines[i].inbox.pop_front()
            {
                self.begin_round(i, round);
            }
            if !self.engines[i].running.is_empty() {
                self.forward(i);
            }
        }
    }

    fn begin_round(&mut self, i: usize, round: Round) {
        let now = self.stamp();
        for admitted in &round.batch {
            let story = &self.stories[self.numbers[&admitted.key]];
            let request = story.request.expect("it was offered");
            self.admissions += 1;
            let to_prefill = request.prompt.0 + admitted.generated.0;
            self.engines[i].running.push(Sequence {
                key: admitted.key,
                to_prefill,
                positions: 0,
                left: request.max_new.0 - admitted.generated.0,
                admitted: self.admissions,
            });
        }
        let engine = &mut self.engines[i];
        engine.last_seq = round.seq;
        let seq = round.seq;
        let engine = engine.id;
        self.core.observe(now, Report::Begun { engine, seq });
        self.send_rounds();
    }

    fn send_rounds(&mut self) {
        while let Some(round) = self.core.plan(self.stamp()) {
            let numbers: Vec<usize> =
                round.batch.iter().map(|admitted| self.numbers[&admitted.key]).collect();
            for (number, admitted) in numbers.iter().zip(&round.batch) {
                let story = &mut self.stories[*number];
                assert_eq!(admitted.generated.0, story.tokens);
                story.first_admission.get_or_insert((self.now, admitted.waited));
            }
            self.rounds.push((self.now, numbers));
            let engine = self.engines.iter_mut().find(|e| e.id == round.engine).expect("it is attached");
            engine.inbox.push_back(round);
        }
    }

    /// One forward: a chunk of prefill and all rows that decode. When the pool runs dry the youngest go.
    fn forward(&mut self, i: usize) {
        let limits = self.core.engine_limits();
        let engine = &mut self.engines[i];
        let mut chunk = limits.step_prefill_tokens.0;
        let (mut prefilled, mut rows) = (0, Vec::new());
        for sequence in &mut engine.running {
            if sequence.to_prefill > 0 {
                let tokens = sequence.to_prefill.min(chunk);
                sequence.to_prefill -= tokens;
                sequence.positions += tokens;
                chunk -= tokens;
                prefilled += tokens;
                if tokens == 0 || sequence.to_prefill > 0 {
                    continue;
                }
            }
            sequence.positions += 1;
            sequence.left -= 1;
            let end = (sequence.left == 0).then_some(End::Finished);
            rows.push(Row { key: sequence.key, tokens: Tokens(1), end });
        }
        let blocks = |running: &[Sequence]| running.iter().map(|s| s.positions.div_ceil(16)).sum::<u32>();
        while blocks(&engine.running) > engine.geometry.kv_blocks.0 {
            let youngest = (0..engine.running.len()).max_by_key(|s| engine.running[*s].admitted);
            let gone = engine.running.remove(youngest.expect("someone holds blocks"));
            rows.retain(|row| row.key != gone.key);
            rows.push(Row { key: gone.key, tokens: Tokens(0), end: Some(End::Preempted) });
        }
        let allocated = blocks(&engine.running);
        self.most_allocated = self.most_allocated.max(allocated);
        engine.running.retain(|s| s.left > 0);
        let took = self.cost.step
            + self.cost.per_prompt_token * i64::from(prefilled)
            + self.cost.per_row * rows.len() as i64;
        if !rows.is_empty() {
            self.gaps.push(took);
        }
        let free = engine.geometry.kv_blocks.0 - blocks(&engine.running);
        let (start, end) = (Stamp::from_ns(self.now), Stamp::from_ns(self.now + took));
        let decode_rows = rows.len() as u32;
        let forward = Some(Forward { start, end, prefill_tokens: Tokens(prefilled), decode_rows });
        let (engine_id, last_seq) = (engine.id, engine.last_seq);
        let step = Step { engine: engine_id, rows, free_blocks: Blocks(free), last_seq, forward };
        engine.step = Some((self.now + took, step));
    }

    fn end(&mut self, step: Step) {
        for row in &step.rows {
            let story = &mut self.stories[self.numbers[&row.key]];
            story.tokens += row.tokens.0;
            match row.end {
                Some(End::Finished) => story.finished = Some(self.now),
                Some(End::Preempted) => story.preemptions += 1,
                None => {}
            }
        }
        self.core.observe(self.stamp(), Report::Step(step));
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
