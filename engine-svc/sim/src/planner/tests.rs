use proptest::prelude::*;

use super::*;

const BLOCK: usize = 4;

fn limits(max_batch_size: usize, step_prefill_tokens: usize) -> Limits {
    Limits { max_batch_size, step_prefill_tokens, decode_first: false }
}

fn planner(blocks: usize, limits: Limits) -> Planner {
    let shape = Shape { eos_ids: vec![0], max_sequences: 100, mixed: false, draft_tokens: 0 };
    Planner::new(shape, limits, KvPool::new(blocks, BLOCK))
}

fn prompt(first: u32, len: usize, max_new_tokens: usize) -> NewSequence {
    NewSequence {
        tokens: (0..len as u32).map(|i| first * 1000 + i).collect(),
        max_new_tokens,
        stop_token_ids: vec![],
        ignore_eos: false,
        prefix_cache: true,
    }
}

/// Runs one forward with `token` sampled wherever a row samples; checks the books afterwards.
fn run(planner: &mut Planner, kind: ForwardKind, token: u32) -> Option<(ForwardPlan, Vec<Outcome>)> {
    let plan = planner.plan(kind, &|_| true)?;
    let sampled: Vec<_> = plan.rows.iter().map(|row| row.samples.then_some(token)).collect();
    let outcomes = planner.complete(&plan, &sampled);
    planner.check_integrity().unwrap();
    Some((plan, outcomes))
}

fn ids(plan: &ForwardPlan) -> Vec<u32> {
    plan.rows.iter().map(|row| row.id.0).collect()
}

#[test]
fn a_prompt_is_prefilled_in_chunks_and_samples_after_the_last() {
    let mut planner = planner(10, limits(8, 5));
    planner.admit(BatchId(1), [(SeqId(0), prompt(1, 12, 2))]);
    let mut seen = Vec::new();
    while let Some((plan, _)) = run(&mut planner, ForwardKind::Prefill, 7) {
        seen.extend(plan.rows.iter().map(|row| (row.start, row.len, row.begins, row.samples)));
    }
    assert_eq!(seen, [(0, 5, true, false), (5, 5, false, false), (10, 2, false, true)]);
    let (_, outcomes) = run(&mut planner, ForwardKind::Decode, 7).unwrap();
    assert_eq!(outcomes[0].end, Some(End::Length));
    assert!(planner.is_idle());
    assert_eq!(planner.kv().free(), 10);
}

#[test]
fn a_batch_leaves_the_inbox_when_the_chunk_budget_has_room_for_its_first_row() {
    let mut planner = planner(20, limits(8, 8));
    planner.admit(BatchId(1), [(SeqId(0), prompt(1, 8, 9))]);
    planner.admit(BatchId(2), [(SeqId(1), prompt(2, 4, 9)), (SeqId(2), prompt(3, 8, 9))]);
    planner.admit(BatchId(3), [(SeqId(3), prompt(4, 4, 9))]);
    let (plan, _) = run(&mut planner, ForwardKind::Prefill, 7).unwrap();
    assert_eq!(plan.begun, [BatchId(1)], "the first batch uses the whole budget");
    let (plan, _) = run(&mut planner, ForwardKind::Prefill, 7).unwrap();
    assert_eq!((ids(&plan), plan.begun), (vec![1, 2], vec![BatchId(2)]), "a batch leaves as a whole");
    let (plan, _) = run(&mut planner, ForwardKind::Prefill, 7).unwrap();
    assert_eq!((ids(&plan), plan.begun), (vec![2, 3], vec![BatchId(3)]));
}

#[test]
fn decode_groups_rotate_when_more_rows_are_active_than_a_forward_holds() {
    let mut planner = planner(20, limits(2, 100));
    planner.admit(BatchId(1), (0..3).map(|i| (SeqId(i), prompt(i, 2, 9))));
    run(&mut planner, ForwardKind::Prefill, 7);
    let groups: Vec<_> = (0..3).map(|_| ids(&run(&mut planner, ForwardKind::Decode, 7).unwrap().0)).collect();
    assert_eq!(groups, [vec![0, 1], vec![0, 2], vec![1, 2]]);
}

#[test]
fn decode_first_puts_the_decode_forward_ahead() {
    let mut planner = planner(4, limits(2, 8));
    assert_eq!(planner.step(), [ForwardKind::Prefill, ForwardKind::Decode]);
    planner.set_limits(Limits { decode_first: true, ..planner.limits() });
    assert_eq!(planner.step(), [ForwardKind::Decode, ForwardKind::Prefill]);
}

#[test]
fn the_youngest_gives_way_when_the_pool_runs_dry() {
    let mut planner = planner(4, limits(8, 100));
    planner.admit(BatchId(1), (0..2).map(|i| (SeqId(i), prompt(i + 1, 8, 8))));
    run(&mut planner, ForwardKind::Prefill, 7);
    assert_eq!(planner.kv().free(), 0);
    let (plan, _) = run(&mut planner, ForwardKind::Decode, 7).unwrap();
    assert_eq!((ids(&plan), plan.preempted), (vec![0], vec![SeqId(1)]));
    let mut last = None;
    while let Some((_, outcomes)) = run(&mut planner, ForwardKind::Decode, 7) {
        last = outcomes[0].end;
    }
    assert_eq!(last, Some(End::Length), "the oldest always finishes");
}

/// Positions that the tables of these sequences hold.
fn room(planner: &Planner, ids: impl IntoIterator<Item = u32>) -> Vec<usize> {
    ids.into_iter().map(|id| planner.sequence(SeqId(id)).unwrap().blocks().len() * BLOCK).collect()
}

#[test]
fn the_block_of_the_next_token_is_there_a_forward_before_it_is_asked_for() {
    let mut planner = planner(10, limits(8, 100));
    planner.admit(BatchId(1), [(SeqId(0), prompt(1, 6, 9))]);
    run(&mut planner, ForwardKind::Prefill, 7);
    for computed in 6..14 {
        let plan = planner.plan(ForwardKind::Decode, &|_| true).unwrap();
        assert_eq!(plan.rows[0].start, computed);
        // Of nine tokens the last is not computed: fourteen positions in all.
        assert_eq!(room(&planner, [0])[0], (computed + 2).min(14).next_multiple_of(BLOCK));
        planner.complete(&plan, &[Some(7)]);
    }
    assert!(planner.is_idle());
}

#[test]
fn nobody_gives_way_for_a_block_that_is_not_needed_yet() {
    let mut planner = planner(3, limits(8, 100));
    planner.admit(BatchId(1), [(SeqId(0), prompt(1, 3, 9)), (SeqId(1), prompt(2, 5, 2))]);
    run(&mut planner, ForwardKind::Prefill, 7);
    let (plan, _) = run(&mut planner, ForwardKind::Decode, 7).unwrap();
    assert_eq!((ids(&plan), plan.preempted.len()), (vec![0, 1], 0));
}

#[test]
fn a_block_taken_early_is_given_back_before_anyone_gives_way() {
    let mut planner = planner(5, limits(1, 100));
    planner.admit(BatchId(1), [(SeqId(0), prompt(1, 7, 9)), (SeqId(1), prompt(2, 8, 9))]);
    run(&mut planner, ForwardKind::Prefill, 7);
    // The first of two groups takes the last block one forward early; the second cannot do without it.
    run(&mut planner, ForwardKind::Decode, 7);
    assert_eq!((room(&planner, [0, 1]), planner.kv().free()), (vec![12, 8], 0));
    let (plan, _) = run(&mut planner, ForwardKind::Decode, 7).unwrap();
    assert_eq!((ids(&plan), plan.preempted.len()), (vec![1], 0));
    assert_eq!(room(&planner, [0, 1]), [8, 12]);
}

#[test]
fn a_younger_prompt_waits_for_blocks_and_takes_none_from_older_ones() {
    let mut planner = planner(4, limits(8, 100));
    planner.admit(BatchId(1), [(SeqId(0), prompt(1, 12, 4))]);
    planner.admit(BatchId(2), [(SeqId(1), prompt(2, 12, 4))]);
    let (plan, _) = run(&mut planner, ForwardKind::Prefill, 7).unwrap();
    assert_eq!(plan.rows.iter().map(|row| row.len).collect::<Vec<_>>(), [12, 4]);
    assert!(run(&mut planner, ForwardKind::Prefill, 7).is_none());
    let (plan, _) = run(&mut planner, ForwardKind::Decode, 7).unwrap();
    assert_eq!(plan.preempted, [SeqId(1)], "the older one decodes on");
}

#[test]
fn blocks_that_a_prompt_has_yet_to_take_are_promised_to_no_one_else() {
    let mut planner = planner(10, limits(8, 4));
    planner.admit(BatchId(1), [(SeqId(0), prompt(1, 12, 9)), (SeqId(1), prompt(2, 5, 9))]);
    assert_eq!(planner.free_to_promise(), 10, "the inbox is the scheduler's to count");
    let mut seen = Vec::new();
    while let Some((plan, _)) = run(&mut planner, ForwardKind::Prefill, 7) {
        seen.push((ids(&plan), planner.kv().free(), planner.free_to_promise()));
    }
    let all = |rows: &[u32], free| (rows.to_vec(), free, 5);
    assert_eq!(seen, [all(&[0], 9), all(&[0], 8), all(&[0], 7), all(&[1], 6), all(&[1], 5)]);
    planner.cancel(SeqId(0));
    planner.cancel(SeqId(1));
    assert_eq!(planner.free_to_promise(), 10);
}

#[test]
fn a_shared_prefix_is_prefilled_once_even_inside_one_batch() {
    let mut planner = planner(40, limits(8, 1000));
    let with_tail = |tail: u32| {
        let mut seq = prompt(1, 16, 2);
        seq.tokens.push(tail);
        seq
    };
    planner.admit(BatchId(1), (0..3).map(|i| (SeqId(i), with_tail(50 + i))));
    let (first, _) = run(&mut planner, ForwardKind::Prefill, 7).unwrap();
    assert_eq!((ids(&first), first.prefill_tokens()), (vec![0], 17));
    let (second, _) = run(&mut planner, ForwardKind::Prefill, 7).unwrap();
    assert_eq!((ids(&second), second.prefill_tokens(), second.cached_tokens), (vec![1, 2], 2, 32));
}

#[test]
fn whoever_waits_for_a_prefix_goes_alone_when_its_owner_is_cancelled() {
    let mut planner = planner(40, limits(8, 10));
    planner.admit(BatchId(1), (0..2).map(|i| (SeqId(i), prompt(1, 16, 2))));
    let (plan, _) = run(&mut planner, ForwardKind::Prefill, 7).unwrap();
    assert_eq!(ids(&plan), [0]);
    assert!(planner.cancel(SeqId(0)));
    let (plan, _) = run(&mut planner, ForwardKind::Prefill, 7).unwrap();
    // The two blocks that were full by then are found; the rest is computed.
    assert_eq!((ids(&plan), plan.cached_tokens, plan.prefill_tokens()), (vec![1], 8, 8));
}

#[test]
fn without_the_prefix_cache_nothing_is_read_or_kept() {
    let mut planner = planner(40, limits(8, 100));
    for id in 0..2 {
        let seq = NewSequence { prefix_cache: false, ..prompt(1, 16, 1) };
        planner.admit(BatchId(id), [(SeqId(id as u32), seq)]);
        let (plan, _) = run(&mut planner, ForwardKind::Prefill, 7).unwrap();
        assert_eq!((plan.prefill_tokens(), plan.cached_tokens), (16, 0));
    }
    assert_eq!(planner.kv().cached(), 0);
}

#[test]
fn a_wholly_cached_prompt_computes_one_token_in_a_copied_block() {
    let mut planner = planner(40, limits(8, 100));
    planner.admit(BatchId(1), [(SeqId(0), prompt(1, 16, 1))]);
    run(&mut planner, ForwardKind::Prefill, 7);
    planner.admit(BatchId(2), [(SeqId(0), prompt(1, 16, 1))]);
    let (plan, _) = run(&mut planner, ForwardKind::Prefill, 7).unwrap();
    assert_eq!((plan.prefill_tokens(), plan.cached_tokens, plan.copies.len()), (1, 15, 1));
}

#[test]
fn a_sequence_ends_on_eos_unless_told_to_ignore_it_and_on_its_stop_tokens() {
    let mut planner = planner(40, limits(8, 100));
    let ignoring = NewSequence { ignore_eos: true, ..prompt(2, 4, 9) };
    let stopping = NewSequence { ignore_eos: true, stop_token_ids: vec![0], ..prompt(3, 4, 9) };
    planner.admit(BatchId(1), [(SeqId(0), prompt(1, 4, 9)), (SeqId(1), ignoring), (SeqId(2), stopping)]);
    let (_, outcomes) = run(&mut planner, ForwardKind::Prefill, 0).unwrap();
    let ends: Vec<_> = outcomes.iter().map(|outcome| outcome.end).collect();
    assert_eq!(ends, [Some(End::Eos), None, Some(End::StopToken)]);
}

#[test]
fn a_sequence_that_may_not_run_stands_still_and_holds_up_nobody() {
    let mut planner = planner(40, limits(1, 100));
    planner.admit(BatchId(1), (0..2).map(|i| (SeqId(i), prompt(i, 4, 9))));
    run(&mut planner, ForwardKind::Prefill, 7);
    for _ in 0..3 {
        let plan = planner.plan(ForwardKind::Decode, &|id| id != SeqId(0)).unwrap();
        assert_eq!(ids(&plan), [1]);
        planner.complete(&plan, &[Some(7)]);
    }
}

#[test]
fn mixed_forwards_hold_prompt_and_decode_rows() {
    let shape = Shape { eos_ids: vec![], max_sequences: 8, mixed: true, draft_tokens: 0 };
    let mut planner = Planner::new(shape, limits(8, 100), KvPool::new(20, BLOCK));
    planner.admit(BatchId(1), [(SeqId(0), prompt(1, 4, 9))]);
    run(&mut planner, ForwardKind::Mixed, 7);
    planner.admit(BatchId(2), [(SeqId(1), prompt(2, 4, 9))]);
    let (plan, outcomes) = run(&mut planner, ForwardKind::Mixed, 7).unwrap();
    assert_eq!(plan.rows.iter().map(|row| row.prompt).collect::<Vec<_>>(), [false, true]);
    assert_eq!(outcomes.iter().map(|outcome| outcome.first).collect::<Vec<_>>(), [false, true]);
}

#[derive(Debug, Clone)]
enum Op {
    Admit { family: u32, len: usize, max_new: usize, prefix_cache: bool },
    Cancel(usize),
    Step,
}

fn op() -> impl Strategy<Value = Op> {
    let admit = (0u32..3, 1usize..30, 1usize..12, any::<bool>())
        .prop_map(|(family, len, max_new, prefix_cache)| Op::Admit { family, len, max_new, prefix_cache });
    prop_oneof![2 => admit, 1 => (0usize..50).prop_map(Op::Cancel), 6 => Just(Op::Step)]
}

proptest! {
    /// Whatever is admitted and cancelled when: the books add up after every forward, no row is planned twice in
    /// one, every sequence ends exactly once, and the engine comes to rest with every block free.
    #[test]
    fn every_sequence_ends_once_and_every_block_comes_back(
        ops in prop::collection::vec(op(), 1..120),
        blocks in 11usize..30,
        max_batch_size in 1usize..5,
        step_prefill_tokens in 1usize..40,
        mixed: bool,
        decode_first: bool,
    ) {
        let shape = Shape { eos_ids: vec![0], max_sequences: 6, mixed, draft_tokens: 0 };
        let limits = Limits { max_batch_size, step_prefill_tokens, decode_first };
        let mut planner = Planner::new(shape, limits, KvPool::new(blocks, BLOCK));
        let mut live: Vec<SeqId> = Vec::new();
        let mut next = 0u32;
        let step = |planner: &mut Planner, live: &mut Vec<SeqId>| {
            let mut progress = false;
            for &kind in planner.step() {
                let Some(plan) = planner.plan(kind, &|_| true) else { continue };
                progress = true;
                let mut rows = ids(&plan);
                rows.sort_unstable();
                rows.dedup();
                assert_eq!(rows.len(), plan.rows.len(), "one chunk per sequence");
                assert!(plan.prefill_tokens() <= step_prefill_tokens);
                assert!(plan.rows.iter().filter(|row| !row.prompt).count() <= max_batch_size);
                for row in &plan.rows {
                    let seq = planner.sequence(row.id).expect("a planned row is in the engine");
                    assert!(seq.blocks().len() * BLOCK >= row.end() && seq.tokens().len() >= row.end());
                }
                let sampled: Vec<_> = plan.rows.iter().map(|row| row.samples.then_some(7)).collect();
                let ended = planner.complete(&plan, &sampled);
                let ended = ended.iter().filter(|outcome| outcome.end.is_some()).map(|outcome| outcome.id);
                for id in plan.preempted.iter().copied().chain(ended) {
                    let at = live.iter().position(|&other| other == id).expect("ends once");
                    live.swap_remove(at);
                }
                planner.check_integrity().unwrap();
            }
            progress
        };
        for op in ops {
            match op {
                Op::Admit { family, len, max_new, prefix_cache } => {
                    let new = NewSequence { prefix_cache, ..prompt(family, len, max_new) };
                    planner.admit(BatchId(next.into()), [(SeqId(next), new)]);
                    live.push(SeqId(next));
                    next += 1;
                }
                Op::Cancel(which) if !live.is_empty() => {
                    let id = live.swap_remove(which % live.len());
                    prop_assert!(planner.cancel(id));
                    prop_assert!(planner.check_integrity().is_ok());
                }
                Op::Cancel(_) => {}
                Op::Step => { step(&mut planner, &mut live); }
            }
        }
        let mut steps = 0;
        while step(&mut planner, &mut live) {
            steps += 1;
            prop_assert!(steps < 100_000, "no end in sight");
        }
        prop_assert!(live.is_empty(), "stuck: {live:?}");
        prop_assert!(planner.is_idle());
        prop_assert_eq!(planner.kv().free(), blocks);
    }
}

/// One sequence that has said `tokens` after a prompt of two, with drafts of at most `draft_tokens`.
fn drafting(draft_tokens: usize, blocks: usize, max_new_tokens: usize, tokens: &[u32]) -> Planner {
    let shape = Shape { max_sequences: 100, draft_tokens, ..Shape::default() };
    let mut planner = Planner::new(shape, limits(8, 8), KvPool::new(blocks, BLOCK));
    planner.admit(BatchId(1), [(SeqId(0), prompt(1, 2, max_new_tokens))]);
    run(&mut planner, ForwardKind::Prefill, tokens[0]).unwrap();
    for &token in &tokens[1..] {
        let plan = planner.plan(ForwardKind::Decode, &|_| true).unwrap();
        // Drafts, if any, are wrong here.
        let sampled: Vec<_> =
            plan.rows.iter().map(|row| Some(if row.draft.is_none() { token } else { 99 })).collect();
        planner.complete(&plan, &sampled);
    }
    planner
}

#[test]
fn drafts_are_kept_as_far_as_the_model_says_the_same() {
    let mut planner = drafting(3, 10, 20, &[5, 6, 7, 8, 5, 6]);
    let plan = planner.plan(ForwardKind::Decode, &|_| true).unwrap();
    let drafts: Vec<_> = plan.rows.iter().map(|row| (row.start, row.draft)).collect();
    assert_eq!(drafts, [(7, None), (8, Some(7)), (9, Some(8)), (10, Some(5))]);
    // It says 7 as guessed, then 4 where 8 was guessed: what was computed behind the 8 counts for nothing.
    let outcomes = planner.complete(&plan, &[Some(7), Some(4), Some(1), Some(2)]);
    assert_eq!(
        outcomes.iter().map(|o| (o.token, o.drafted)).collect::<Vec<_>>(),
        [(Some(7), false), (Some(4), true)]
    );
    assert_eq!(planner.sequence(SeqId(0)).unwrap().tokens()[7..], [6, 7, 4]);
    planner.check_integrity().unwrap();
    let next = planner.plan(ForwardKind::Decode, &|_| true).unwrap();
    assert_eq!(next.rows[0].start, 9);
}

#[test]
fn a_sequence_that_ends_within_its_drafts_brings_nothing_beyond() {
    let mut planner = drafting(3, 10, 20, &[5, 6, 7, 8, 5, 6]);
    planner.shape.eos_ids = vec![7];
    let plan = planner.plan(ForwardKind::Decode, &|_| true).unwrap();
    let outcomes = planner.complete(&plan, &[Some(7), Some(8), Some(5), Some(6)]);
    assert_eq!(outcomes.iter().map(|o| o.end).collect::<Vec<_>>(), [Some(End::Eos)]);
    assert!(planner.is_idle());
}

#[test]
fn drafts_take_neither_more_tokens_than_are_left_nor_blocks_of_others() {
    // Three tokens are left: one is sampled behind the decode row, so two guesses are of use.
    let mut planner = drafting(9, 10, 9, &[5, 6, 7, 8, 5, 6]);
    assert_eq!(planner.plan(ForwardKind::Decode, &|_| true).unwrap().rows.len(), 3);
    // Two blocks hold eight positions, and the decode row fills the last.
    let mut planner = drafting(9, 2, 20, &[5, 6, 7, 8, 5, 6]);
    let plan = planner.plan(ForwardKind::Decode, &|_| true).unwrap();
    assert_eq!((plan.rows.len(), plan.preempted.len()), (1, 0));
}
