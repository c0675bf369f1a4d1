//! Which rows the next forward holds. Synchronous and without a clock: the step loop (or a replay) asks for a
//! forward, executes it, and tells what was sampled.
//!
//! - [`sequence`]: what a sequence is, and when it ends
//! - [`forward`]: a planned forward and what became of its rows
//! - `prefill`, `decode`, `draft`: how each kind of row is chosen
//! - `ahead`: the block for the token after the next one
//! - `preempt`: who gives way when the pool runs dry

use std::collections::VecDeque;

use rustc_hash::FxHashMap;

use crate::kv::{KvPool, pool::IntegrityError, pool::PrefixHash};

mod ahead;
mod decode;
mod draft;
pub mod forward;
mod preempt;
mod prefill;
pub mod sequence;

pub use forward::{End, ForwardKind, ForwardPlan, Outcome, Row};
pub use sequence::{BatchId, NewSequence, SeqId, Sequence};

/// The part of the budget that the engine enforces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Rows of one decode forward, at least 1; groups rotate when more rows are active.
    pub max_batch_size: usize,
    /// Prompt tokens of one prefill forward, at least 1.
    pub step_prefill_tokens: usize,
    /// Run the decode forward of a step before its prefill forward.
    pub decode_first: bool,
}

/// What holds for the life of an engine.
#[derive(Debug, Clone, Default)]
pub struct Shape {
    /// Ids that end a sequence unless it ignores them.
    pub eos_ids: Vec<u32>,
    /// Most sequences that have begun and not ended, at least 1.
    pub max_sequences: usize,
    /// Prompt and decode rows share one forward per step.
    pub mixed: bool,
    /// Most tokens guessed ahead of each decode row from the sequence's own tokens; 0 = none.
    pub draft_tokens: usize,
}

/// Sequences by state: in the inbox, prefilling, decoding. Owns their tokens and the books of the KV pool.
#[derive(Debug)]
pub struct Planner {
    shape: Shape,
    limits: Limits,
    kv: KvPool,
    /// Indexed by [`SeqId`].
    sequences: Vec<Option<Sequence>>,
    inbox: VecDeque<Batch>,
    /// Left the inbox, prompt not finished; oldest first.
    prefilling: VecDeque<SeqId>,
    /// In turn: the next decode forward takes from the front.
    decoding: VecDeque<SeqId>,
    /// Prompt blocks being computed, and by whom: others with the same prefix wait for them.
    pending: FxHashMap<PrefixHash, SeqId>,
    /// Sequences that have begun and not ended.
    active: usize,
    next_age: u64,
}

#[derive(Debug)]
struct Batch {
    id: BatchId,
    sequences: Vec<SeqId>,
}

impl Planner {
    /// An idle engine over `kv`.
    pub fn new(shape: Shape, limits: Limits, kv: KvPool) -> Self {
        Self {
            shape,
            limits,
            kv,
            sequences: Vec::new(),
            inbox: VecDeque::new(),
            prefilling: VecDeque::new(),
            decoding: VecDeque::new(),
            pending: FxHashMap::default(),
            active: 0,
            next_age: 0,
        }
    }

    /// Limits in force.
    pub fn limits(&self) -> Limits {
        self.limits
    }

    /// Changes the limits from the next forward on.
    pub fn set_limits(&mut self, limits: Limits) {
        self.limits = limits;
    }

    /// Puts a batch at the end of the inbox. The caller chooses ids that no sequence in the engine has.
    ///
    /// # Panics
    /// When an id is taken, or a sequence has no tokens.
    pub fn admit(&mut self, id: BatchId, batch: impl IntoIterator<Item = (SeqId, NewSequence)>) {
        let mut sequences = Vec::new();
        for (seq, new) in batch {
            let slot = seq.index();
            if self.sequences.len() <= slot {
                self.sequences.resize_with(slot + 1, || None);
            }
            assert!(self.sequences[slot].is_none() && !new.tokens.is_empty(), "{seq:?} is taken or empty");
            let hashes = if new.prefix_cache { self.kv.prefix_hashes(&new.tokens) } else { Vec::new() };
            self.sequences[slot] = Some(Sequence::new(new, self.next_age, hashes));
            self.next_age += 1;
            sequences.push(seq);
        }
        self.inbox.push_back(Batch { id, sequences });
    }

    /// The forwards of a step, in order.
    pub fn step(&self) -> &'static [ForwardKind] {
        match (self.shape.mixed, self.limits.decode_first) {
            (true, _) => &[ForwardKind::Mixed],
            (false, true) => &[ForwardKind::Decode, ForwardKind::Prefill],
            (false, false) => &[ForwardKind::Prefill, ForwardKind::Decode],
        }
    }

    /// Plans the next forward of `kind`; `None` when there is nothing to run and nothing to report. Sequences for
    /// which `may_run` is false are left as they are (their reader is slow).
    pub fn plan(&mut self, kind: ForwardKind, may_run: &dyn Fn(SeqId) -> bool) -> Option<ForwardPlan> {
        let mut plan = ForwardPlan::new(kind);
        if kind != ForwardKind::Prefill {
            self.add_decode_rows(&mut plan, may_run);
            self.add_draft_rows(&mut plan);
        }
        if kind != ForwardKind::Decode {
            self.add_prefill_rows(&mut plan, may_run);
        }
        // Last: every row of the plan has its blocks by now.
        self.look_ahead(&plan);
        let nothing = plan.rows.is_empty() && plan.preempted.is_empty();
        (!nothing).then_some(plan)
    }

    /// Takes in what an executed forward sampled: one entry per row, a token where the row samples. Drafts that
    /// turn out wrong bring nothing. Sequences that end are forgotten and their blocks are free.
    pub fn complete(&mut self, plan: &ForwardPlan, sampled: &[Option<u32>]) -> Vec<Outcome> {
        let mut outcomes = Vec::with_capacity(plan.rows.len());
        for (row, &token) in plan.rows.iter().zip(sampled) {
            let Some(seq) = self.sequences[row.id.index()].as_mut() else { continue };
            if row.draft.is_some_and(|draft| seq.tokens.get(row.start) != Some(&draft)) {
                continue;
            }
            seq.computed = row.end();
            if seq.prefix_cache {
                self.kv.publish(&mut seq.table, &mut seq.hashes, &seq.tokens, seq.computed);
            }
            if !row.samples {
                continue;
            }
            let first = seq.generated == 0;
            let end = match token {
                Some(token) => seq.push(token, &self.shape.eos_ids),
                None => Some(End::Failed),
            };
            if first {
                self.leave_prefill(row.id);
            }
            match end {
                Some(_) => self.remove(row.id),
                None if first => self.decoding.push_back(row.id),
                None => {}
            }
            let token = token.filter(|_| end != Some(End::Failed));
            outcomes.push(Outcome { id: row.id, token, first, drafted: row.draft.is_some(), end });
        }
        outcomes
    }

    /// Forgets a sequence wherever it is and frees its blocks. `false` when there is none of that id.
    pub fn cancel(&mut self, id: SeqId) -> bool {
        let known = self.sequence(id).is_some();
        if known {
            self.remove(id);
        }
        known
    }

    /// A sequence in the engine.
    pub fn sequence(&self, id: SeqId) -> Option<&Sequence> {
        self.sequences.get(id.index())?.as_ref()
    }

    /// The pool's books.
    pub fn kv(&self) -> &KvPool {
        &self.kv
    }

    /// Blocks that may be promised to others: those free, less what prompts that left the inbox have yet to take.
    pub fn free_to_promise(&self) -> usize {
        let missing = |seq: &Sequence| self.kv.blocks_for(seq.prompt_len).saturating_sub(seq.table.len());
        let prompts = self.prefilling.iter().filter_map(|&id| self.sequence(id));
        self.kv.free().saturating_sub(prompts.map(missing).sum())
    }

    /// Sequences that have begun and not ended.
    pub fn active(&self) -> usize {
        self.active
    }

    /// Sequences that left the inbox and have not finished their prompt.
    pub fn prefilling(&self) -> usize {
        self.prefilling.len()
    }

    /// Sequences in the inbox.
    pub fn inbox(&self) -> usize {
        self.inbox.iter().map(|batch| batch.sequences.len()).sum()
    }

    /// Whether no sequence is in the engine.
    pub fn is_idle(&self) -> bool {
        self.inbox.is_empty() && self.prefilling.is_empty() && self.decoding.is_empty()
    }

    /// Checks the books of the pool against every sequence's table.
    ///
    /// # Errors
    /// The first block whose books are wrong.
    pub fn check_integrity(&self) -> Result<(), IntegrityError> {
        self.kv.check_integrity(self.sequences.iter().flatten().map(|seq| &seq.table))
    }

    /// Takes `id` out of every place and frees its blocks.
    fn remove(&mut self, id: SeqId) {
        let Some(seq) = self.sequences[id.index()].take() else { return };
        if seq.generated == 0 {
            self.leave_prefill(id);
        }
        self.active -= usize::from(seq.begun);
        self.kv.release(seq.table);
        if let Some(place) = self.decoding.iter().position(|&other| other == id) {
            self.decoding.remove(place);
        }
        for batch in &mut self.inbox {
            batch.sequences.retain(|&other| other != id);
        }
        self.inbox.retain(|batch| !batch.sequences.is_empty());
    }

    fn leave_prefill(&mut self, id: SeqId) {
        self.prefilling.retain(|&other| other != id);
        self.pending.retain(|_, owner| *owner != id);
    }
}

#[cfg(test)]
mod tests;
