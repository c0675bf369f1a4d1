//! When forwards are queued over long runs of the step loop's own planner: one for each step, before anything is
//! waited for.

use firstlight_sim::kv::KvPool;
use firstlight_sim::planner::{BatchId, ForwardKind, Limits, NewSequence, Planner, SeqId, Shape};

use super::*;

const PROMPT_TOKENS: usize = 5;
const NEW_TOKENS: usize = 100;

/// The step loop without its messages.
struct Loop {
    planner: Planner,
    backend: CudaBackend<FakeDevice>,
    calls: Arc<Mutex<Vec<Call>>>,
    admitted: u32,
}

impl Loop {
    /// Over a pool that is large enough for so many sequences.
    fn new(sequences: usize, max_batch_size: usize) -> Self {
        let blocks = sequences * (PROMPT_TOKENS + NEW_TOKENS).div_ceil(16);
        let (backend, calls) = sized(sequences, LIMITS, blocks, 1024);
        let shape = Shape { max_sequences: sequences, ..Shape::default() };
        let limits = Limits { max_batch_size, step_prefill_tokens: 1000, decode_first: false };
        let planner = Planner::new(shape, limits, KvPool::new(blocks, 16));
        Self { planner, backend, calls, admitted: 0 }
    }

    fn admit(&mut self, sequences: u32) {
        let batch = (self.admitted..self.admitted + sequences).map(|id| {
            let tokens = (0..PROMPT_TOKENS as u32).map(|i| (id * 7 + i) % VOCABULARY as u32).collect();
            let (stop_token_ids, ignore_eos, prefix_cache) = (vec![], true, false);
            let new =
                NewSequence { tokens, max_new_tokens: NEW_TOKENS, stop_token_ids, ignore_eos, prefix_cache };
            (SeqId(id), new)
        });
        self.planner.admit(BatchId(self.admitted.into()), batch.collect::<Vec<_>>());
        self.admitted += sequences;
    }

    /// A forward, in which everyone says what its own tokens call for; what the device was asked for it.
    fn forward(&mut self, kind: ForwardKind) -> Vec<Call> {
        let Some(plan) = self.planner.plan(kind, &|_| true) else { return Vec::new() };
        let chunks: Vec<Chunk<'_>> = plan
            .rows
            .iter()
            .map(|row| {
                let seq = self.planner.sequence(row.id).unwrap();
                let (tokens, blocks) = (&seq.tokens()[row.start..row.end()], seq.blocks());
                Chunk { tokens, start: row.start, blocks, sample: Some(&Sampling::GREEDY) }
            })
            .collect();
        let sampled = self.backend.forward(&chunks).unwrap();
        for (row, &token) in plan.rows.iter().zip(&sampled) {
            let tokens = self.planner.sequence(row.id).unwrap().tokens();
            assert_eq!(token, Some(next_token(tokens.iter().copied(), VOCABULARY as u32)));
        }
        self.planner.complete(&plan, &sampled);
        self.planner.check_integrity().unwrap();
        taken(&self.calls)
    }

    /// A step; what the device was asked for its decode forward, if it had one.
    fn step(&mut self) -> Vec<Call> {
        self.forward(ForwardKind::Prefill);
        self.forward(ForwardKind::Decode)
    }
}

/// How many forwards were queued; all of them before the first wait.
fn queued(calls: &[Call]) -> usize {
    let forwards = calls.iter().take_while(|call| matches!(call, Call::Decode { .. })).count();
    assert!(calls[forwards..].iter().all(|call| matches!(call, Call::Tokens(_))), "{calls:?}");
    forwards
}

#[test]
fn cohorts_one_step_apart_take_one_forward_a_step_all_the_way() {
    let mut engine = Loop::new(64, 64);
    for _ in 0..16 {
        engine.admit(4);
        // Those that are new decode beside what ran ahead for the others, then all together.
        assert_eq!(queued(&engine.step()), 2);
    }
    // Whoever has come to a block's end goes on into the next one: there is always somebody here.
    let mut steps = 0;
    while engine.planner.sequence(SeqId(0)).is_some() {
        assert_eq!(queued(&engine.step()), 1, "step {steps}");
        steps += 1;
    }
    assert_eq!(steps, NEW_TOKENS - 1 - 16);
    while !engine.planner.is_idle() {
        assert!(queued(&engine.step()) <= 1, "the last token needs no forward after it");
    }
}

#[test]
fn groups_that_take_turns_keep_the_device_busy() {
    for (sequences, group) in [(8, 4), (12, 4), (11, 4)] {
        let mut engine = Loop::new(sequences, group);
        engine.admit(sequences as u32);
        for _ in 0..2 * sequences.div_ceil(group) {
            engine.step();
        }
        // What a group says was brought while another group's forward ran; its next forward waits for nobody.
        for step in 0..40 {
            assert_eq!(queued(&engine.step()), 1, "{sequences} in groups of {group}, step {step}");
        }
    }
}
