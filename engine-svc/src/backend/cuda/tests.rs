use std::sync::{Arc, Mutex};

mod cadence;

use proptest::prelude::*;

use super::fake::{Call, FORWARD_NS, FakeDevice, next_token};
use super::*;
use crate::sample::Sampling;

const VOCABULARY: usize = 50;
const BLOCKS: usize = 24;
const CONTEXT: usize = 90;

const LIMITS: ForwardLimits = ForwardLimits { prefill_rows: 4096, prefill_chunks: 512, decode_apart: false };

fn backend(largest: usize) -> (CudaBackend<FakeDevice>, Arc<Mutex<Vec<Call>>>) {
    limited(largest, LIMITS)
}

fn limited(largest: usize, limits: ForwardLimits) -> (CudaBackend<FakeDevice>, Arc<Mutex<Vec<Call>>>) {
    sized(largest, limits, BLOCKS, CONTEXT)
}

fn sized(
    largest: usize,
    limits: ForwardLimits,
    blocks: usize,
    context_length: usize,
) -> (CudaBackend<FakeDevice>, Arc<Mutex<Vec<Call>>>) {
    let info = ModelInfo {
        name: "m".into(),
        architecture: "llama".into(),
        dtype: "bf16".into(),
        backend: "cuda",
        tokenizer_hash: String::new(),
        device: "fake".into(),
        vocab_size: VOCABULARY,
        context_length,
        eos_ids: vec![2],
        weight_bytes: 0,
        threads: 1,
    };
    let kv = KvGeometry { block_tokens: 16, blocks, block_bytes: 0 };
    let (device, calls) = FakeDevice::new(blocks, VOCABULARY as u32);
    (CudaBackend::new(device, info, kv, Buckets::up_to(largest), limits), calls)
}

/// A sequence as the step loop would keep it.
#[derive(Debug, Clone)]
struct Sequence {
    tokens: Vec<u32>,
    blocks: Vec<u32>,
    filled: usize,
}

impl Sequence {
    fn new(tokens: &[u32], blocks: &[u32]) -> Self {
        Self { tokens: tokens.to_vec(), blocks: blocks.to_vec(), filled: 0 }
    }

    fn chunk(&self) -> Chunk<'_> {
        Chunk {
            tokens: &self.tokens[self.filled..],
            start: self.filled,
            blocks: &self.blocks,
            sample: Some(&Sampling::GREEDY),
        }
    }

    fn right_token(&self) -> u32 {
        next_token(self.tokens.iter().copied(), VOCABULARY as u32)
    }
}

/// One forward over these sequences; each must say what its own tokens call for.
fn forward(backend: &mut CudaBackend<FakeDevice>, sequences: &mut [&mut Sequence]) {
    let chunks: Vec<Chunk<'_>> = sequences.iter().map(|sequence| sequence.chunk()).collect();
    let tokens = backend.forward(&chunks).unwrap();
    for (sequence, token) in sequences.iter_mut().zip(tokens) {
        assert_eq!(token, Some(sequence.right_token()), "after {:?}", sequence.tokens);
        sequence.filled = sequence.tokens.len();
        sequence.tokens.extend(token);
    }
}

fn taken(calls: &Mutex<Vec<Call>>) -> Vec<Call> {
    std::mem::take(&mut calls.lock().unwrap())
}

#[test]
fn the_next_forward_is_queued_before_the_tokens_of_this_one_are_waited_for() {
    let (mut backend, calls) = backend(8);
    let (mut a, mut b) = (Sequence::new(&[1, 2, 3], &[4]), Sequence::new(&[5, 6], &[9]));
    forward(&mut backend, &mut [&mut a, &mut b]);
    assert_eq!(taken(&calls), [Call::Prefill { ticket: 1, rows: 5 }, Call::Tokens(1)]);
    forward(&mut backend, &mut [&mut a, &mut b]);
    let decode = |ticket, rows, bucket, from_device| Call::Decode { ticket, rows, bucket, from_device };
    assert_eq!(taken(&calls), [decode(2, 2, 2, 0), decode(3, 2, 2, 2), Call::Tokens(2)]);
    for ticket in 3..8 {
        forward(&mut backend, &mut [&mut a, &mut b]);
        assert_eq!(taken(&calls), [decode(ticket + 1, 2, 2, 2), Call::Tokens(ticket)]);
    }
}

#[test]
fn a_sequence_that_ends_costs_one_wasted_row() {
    let (mut backend, calls) = backend(8);
    let (mut a, mut b) = (Sequence::new(&[1, 2, 3], &[4]), Sequence::new(&[5, 6], &[9]));
    forward(&mut backend, &mut [&mut a, &mut b]);
    forward(&mut backend, &mut [&mut a, &mut b]);
    taken(&calls);
    for _ in 0..4 {
        forward(&mut backend, &mut [&mut a]);
    }
    let rows: Vec<usize> = taken(&calls)
        .into_iter()
        .filter_map(|call| if let Call::Decode { rows, .. } = call { Some(rows) } else { None })
        .collect();
    // The forward with b's late row was queued before b ended; these are all that came after.
    assert_eq!(rows, [1, 1, 1, 1]);
}

#[test]
fn every_forward_is_told_once_with_its_bucket_and_its_own_time() {
    let (mut backend, _) = backend(8);
    let mut all: Vec<Sequence> = (0..3).map(|i| Sequence::new(&[i, i + 1], &[i])).collect();
    let timed = |kind, rows, ticket: u64| DeviceForward { kind, rows, ns: ticket * FORWARD_NS };
    forward(&mut backend, &mut all.iter_mut().collect::<Vec<_>>());
    assert_eq!(backend.device_forwards(), [timed(ForwardKind::Prefill, 6, 1)]);
    for ticket in 2..5 {
        forward(&mut backend, &mut all.iter_mut().collect::<Vec<_>>());
        assert_eq!(backend.device_forwards(), [timed(ForwardKind::Decode, 4, ticket)]);
    }
    // A prompt waits for what ran ahead as well.
    forward(&mut backend, &mut [&mut Sequence::new(&[5; 7], &[9])]);
    let both = [timed(ForwardKind::Decode, 4, 5), timed(ForwardKind::Prefill, 7, 6)];
    assert_eq!(backend.device_forwards(), both);
}

#[test]
fn a_sequence_that_joins_runs_beside_what_ran_ahead() {
    let (mut backend, calls) = backend(8);
    let (mut a, mut b) = (Sequence::new(&[1, 2, 3], &[4]), Sequence::new(&[5, 6], &[9]));
    forward(&mut backend, &mut [&mut a]);
    forward(&mut backend, &mut [&mut a]);
    forward(&mut backend, &mut [&mut b]);
    taken(&calls);
    forward(&mut backend, &mut [&mut a, &mut b]);
    let decode = |ticket, rows, from_device| Call::Decode { ticket, rows, bucket: rows, from_device };
    // a's row was collected when b's prefill was; what b's says is read on the device.
    assert_eq!(taken(&calls), [decode(5, 1, 0), decode(6, 2, 1), Call::Tokens(5)]);
    forward(&mut backend, &mut [&mut a, &mut b]);
    assert_eq!(taken(&calls), [decode(7, 2, 2), Call::Tokens(6)]);
}

#[test]
fn nothing_runs_ahead_into_a_block_that_is_not_there_yet() {
    let (mut backend, calls) = backend(8);
    let mut a = Sequence::new(&[1; 15], &[4]);
    forward(&mut backend, &mut [&mut a]);
    forward(&mut backend, &mut [&mut a]);
    assert_eq!(a.filled, 16);
    taken(&calls);
    a.blocks.push(7);
    forward(&mut backend, &mut [&mut a]);
    assert!(matches!(
        taken(&calls)[..],
        [Call::Decode { from_device: 0, .. }, Call::Decode { .. }, Call::Tokens(_)]
    ));
}

#[test]
fn a_block_that_is_there_already_is_run_into() {
    let (mut backend, calls) = backend(8);
    let mut a = Sequence::new(&[1; 15], &[4, 7]);
    forward(&mut backend, &mut [&mut a]);
    forward(&mut backend, &mut [&mut a]);
    taken(&calls);
    for ticket in 3..6 {
        forward(&mut backend, &mut [&mut a]);
        let next = Call::Decode { ticket: ticket + 1, rows: 1, bucket: 1, from_device: 1 };
        assert_eq!(taken(&calls), [next, Call::Tokens(ticket)]);
    }
}

#[test]
fn nothing_runs_ahead_beyond_the_context() {
    let (mut backend, calls) = backend(8);
    let mut a = Sequence::new(&[1; CONTEXT - 2], &[0, 1, 2, 3, 4, 5]);
    forward(&mut backend, &mut [&mut a]);
    taken(&calls);
    forward(&mut backend, &mut [&mut a]);
    forward(&mut backend, &mut [&mut a]);
    let queued = taken(&calls).iter().filter(|call| matches!(call, Call::Decode { .. })).count();
    assert_eq!(queued, 2, "positions 88 and 89, and none at 90");
}

#[test]
fn a_block_given_to_another_sequence_is_not_taken_for_the_old_ones() {
    let (mut backend, _) = backend(8);
    let mut a = Sequence::new(&[1, 2, 3], &[4]);
    forward(&mut backend, &mut [&mut a]);
    forward(&mut backend, &mut [&mut a]);
    // a ends; its block goes to b, whose next token stands where a's would and happens to be the same.
    let mut prompt = vec![9, 9, 9];
    let last = *a.tokens.last().unwrap();
    prompt.push(last);
    let mut b = Sequence::new(&prompt, &[4]);
    b.tokens.truncate(4);
    let chunk = Chunk { tokens: &prompt[..4], start: 0, blocks: &[4], sample: Some(&Sampling::GREEDY) };
    backend.forward(&[chunk]).unwrap();
    b.filled = 4;
    b.tokens.push(last);
    forward(&mut backend, &mut [&mut b]);
}

#[test]
fn two_sequences_that_come_to_the_same_place_in_the_same_block_are_told_apart() {
    // a runs ahead to position 32, in block 7, and ends there. b comes to the same position with the same token, in
    // the same block, behind a block of its own or behind one that a had.
    for before in [2, 9] {
        let (mut backend, _) = backend(8);
        let mut a = Sequence::new(&(0..31).collect::<Vec<_>>(), &[5, 9, 7]);
        forward(&mut backend, &mut [&mut a]);
        forward(&mut backend, &mut [&mut a]);
        let mut b = Sequence::new(&(10..42).collect::<Vec<_>>(), &[1, before]);
        forward(&mut backend, &mut [&mut b]);
        *b.tokens.last_mut().unwrap() = *a.tokens.last().unwrap();
        b.blocks.push(7);
        forward(&mut backend, &mut [&mut b]);
    }
}

#[test]
fn a_block_that_was_somebody_elses_meanwhile_has_to_be_filled_again() {
    let (mut backend, _) = backend(8);
    let mut a = Sequence::new(&(0..31).collect::<Vec<_>>(), &[5, 9, 7]);
    forward(&mut backend, &mut [&mut a]);
    forward(&mut backend, &mut [&mut a]);
    // a gives block 7 back before it has filled it, and gets it again.
    let mut b = Sequence::new(&[3; 20], &[1, 7]);
    forward(&mut backend, &mut [&mut b]);
    forward(&mut backend, &mut [&mut a]);
    forward(&mut backend, &mut [&mut a]);
}

#[test]
fn more_rows_than_the_largest_bucket_run_in_groups() {
    let (mut backend, calls) = backend(4);
    let mut all: Vec<Sequence> = (0..7).map(|i| Sequence::new(&[i, i + 1], &[i])).collect();
    forward(&mut backend, &mut all.iter_mut().collect::<Vec<_>>());
    taken(&calls);
    forward(&mut backend, &mut all.iter_mut().collect::<Vec<_>>());
    let decode = |ticket, rows, bucket| Call::Decode { ticket, rows, bucket, from_device: 0 };
    let ahead = decode(4, 4, 4);
    assert_eq!(taken(&calls), [decode(2, 4, 4), decode(3, 3, 4), Call::Tokens(2), ahead, Call::Tokens(3)]);
}

#[test]
fn groups_that_take_turns_find_what_ran_ahead_for_them() {
    let (mut backend, calls) = backend(8);
    let (mut a, mut b) = (Sequence::new(&[1, 2, 3], &[4]), Sequence::new(&[5, 6], &[9]));
    forward(&mut backend, &mut [&mut a, &mut b]);
    forward(&mut backend, &mut [&mut a]);
    forward(&mut backend, &mut [&mut b]);
    taken(&calls);
    for _ in 0..3 {
        forward(&mut backend, &mut [&mut a]);
        forward(&mut backend, &mut [&mut b]);
    }
    let rows = |call: &Call| if let Call::Decode { rows, .. } = call { *rows } else { 0 };
    assert_eq!(taken(&calls).iter().map(rows).sum::<usize>(), 6, "one row for each token");
}

#[test]
fn prompts_beyond_the_limits_are_cut_into_forwards() {
    let (mut backend, calls) = limited(4, ForwardLimits { prefill_rows: 40, prefill_chunks: 3, ..LIMITS });
    let prompt: Vec<u32> = (0..57).map(|i| i % 50).collect();
    let mut all: Vec<Sequence> = [(57, 0), (20, 4), (2, 6), (2, 7), (2, 8), (2, 9)]
        .map(|(len, block)| {
            let blocks: Vec<u32> = (block..block + 4).collect();
            Sequence::new(&prompt[..len], &blocks)
        })
        .to_vec();
    forward(&mut backend, &mut all.iter_mut().collect::<Vec<_>>());
    let rows: Vec<usize> = taken(&calls)
        .iter()
        .filter_map(|call| if let Call::Prefill { rows, .. } = call { Some(*rows) } else { None })
        .collect();
    assert_eq!(rows, [40, 39, 6], "as many rows as fit, three chunks at most");
}

#[test]
fn rows_that_decode_run_apart_where_company_would_show() {
    for (decode_apart, kinds) in [(false, "P"), (true, "DDP")] {
        let (mut backend, calls) = limited(4, ForwardLimits { decode_apart, ..LIMITS });
        let mut old = Sequence::new(&(0..16).collect::<Vec<_>>(), &[4, 5]);
        forward(&mut backend, &mut [&mut old]);
        taken(&calls);
        let mut new = Sequence::new(&[5, 6], &[9]);
        forward(&mut backend, &mut [&mut new, &mut old]);
        let kind = |call: &Call| match call {
            Call::Decode { .. } => Some('D'),
            Call::Prefill { .. } => Some('P'),
            Call::Tokens(_) | Call::Copy { .. } => None,
        };
        let ran: String = taken(&calls).iter().filter_map(kind).collect();
        assert_eq!(ran, kinds, "of two in a row the second runs ahead");
    }
}

#[test]
fn copies_keep_their_place_in_the_stream() {
    let (mut backend, calls) = backend(8);
    let mut a = Sequence::new(&[1, 2, 3], &[4]);
    forward(&mut backend, &mut [&mut a]);
    backend.copy_block(4, 11);
    let mut b = Sequence { blocks: vec![11], ..a.clone() };
    forward(&mut backend, &mut [&mut a, &mut b]);
    assert_eq!(taken(&calls)[2], Call::Copy { from: 4, to: 11 });
}

/// What the step loop may do next.
#[derive(Debug, Clone)]
enum Step {
    Prefill { prompt: Vec<u32>, in_two: bool },
    Decode { skip: Vec<bool>, early: bool },
    GiveBack,
    End(prop::sample::Index),
    Fork(prop::sample::Index),
}

fn step() -> impl Strategy<Value = Step> {
    let token = 0..VOCABULARY as u32;
    prop_oneof![
        2 => (prop::collection::vec(token, 1..40), any::<bool>())
            .prop_map(|(prompt, in_two)| Step::Prefill { prompt, in_two }),
        6 => (prop::collection::vec(prop::bool::weighted(0.15), 8), any::<bool>())
            .prop_map(|(skip, early)| Step::Decode { skip, early }),
        1 => Just(Step::GiveBack),
        2 => any::<prop::sample::Index>().prop_map(Step::End),
        1 => any::<prop::sample::Index>().prop_map(Step::Fork),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    /// Sequences come, go and are copied in any order, blocks are taken early, given back and used again at once:
    /// everyone always says what its own tokens call for.
    #[test]
    fn what_runs_ahead_never_shows(steps in prop::collection::vec(step(), 1..60), largest in 1_usize..9) {
        let (mut backend, _) = backend(largest);
        let mut free: Vec<u32> = (0..BLOCKS as u32).collect();
        let mut live: Vec<Sequence> = Vec::new();
        for step in steps {
            match step {
                Step::Prefill { prompt, in_two } => {
                    let need = prompt.len().div_ceil(16);
                    if free.len() < need || live.len() == 8 {
                        continue;
                    }
                    let mut new = Sequence::new(&prompt, &free.split_off(free.len() - need));
                    if in_two && prompt.len() > 1 {
                        let half = prompt.len() / 2;
                        let chunk = Chunk { tokens: &prompt[..half], start: 0, blocks: &new.blocks, sample: None };
                        prop_assert_eq!(backend.forward(&[chunk]).unwrap(), [None]);
                        new.filled = half;
                    }
                    forward(&mut backend, &mut [&mut new]);
                    live.push(new);
                }
                Step::Decode { skip, early } => {
                    let mut rows = Vec::new();
                    for (sequence, skip) in live.iter_mut().zip(skip) {
                        let fits = sequence.tokens.len() <= CONTEXT;
                        while fits && sequence.blocks.len() * 16 < sequence.tokens.len() {
                            match free.pop() {
                                Some(block) => sequence.blocks.push(block),
                                None => break,
                            }
                        }
                        if fits && !skip && sequence.blocks.len() * 16 >= sequence.tokens.len() {
                            if early && sequence.blocks.len() * 16 == sequence.tokens.len() {
                                sequence.blocks.extend(free.pop());
                            }
                            rows.push(sequence);
                        }
                    }
                    if !rows.is_empty() {
                        forward(&mut backend, &mut rows);
                    }
                }
                Step::GiveBack => {
                    for sequence in &mut live {
                        free.extend(sequence.blocks.split_off(sequence.filled.div_ceil(16)));
                    }
                }
                Step::End(index) if !live.is_empty() => {
                    let ended = live.swap_remove(index.index(live.len()));
                    free.extend(ended.blocks);
                }
                Step::Fork(index) if !live.is_empty() && live.len() < 8 => {
                    let old = live[index.index(live.len())].clone();
                    if free.len() < old.blocks.len() {
                        continue;
                    }
                    let blocks = free.split_off(free.len() - old.blocks.len());
                    for (&from, &to) in old.blocks.iter().zip(&blocks) {
                        backend.copy_block(from, to);
                    }
                    live.push(Sequence { blocks, ..old });
                }
                Step::End(_) | Step::Fork(_) => {}
            }
        }
    }
}
