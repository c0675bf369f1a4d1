//! Prefill rows: prompts in order of age, cut into chunks by `step_prefill_tokens`; then batches from the inbox,
//! as long as the chunk budget has room for their first row.

use super::{ForwardPlan, Planner, Row, SeqId};

impl Planner {
    pub(super) fn add_prefill_rows(&mut self, plan: &mut ForwardPlan, may_run: &dyn Fn(SeqId) -> bool) {
        let mut budget = self.limits.step_prefill_tokens;
        for id in self.prefilling.clone() {
            budget -= self.add_chunk(plan, id, budget, may_run);
        }
        while budget > 0 && self.active < self.shape.max_sequences {
            let Some(batch) = self.inbox.pop_front() else { break };
            let rows_before = plan.rows.len();
            for &id in &batch.sequences {
                budget -= self.add_chunk(plan, id, budget, may_run);
            }
            if plan.rows.len() == rows_before {
                self.inbox.push_front(batch);
                break;
            }
            plan.begun.push(batch.id);
            self.prefilling.extend(batch.sequences);
        }
    }

    /// Adds the next chunk of `id`, of at most `budget` tokens. Returns its length; 0 when it cannot run now.
    fn add_chunk(
        &mut self,
        plan: &mut ForwardPlan,
        id: SeqId,
        budget: usize,
        may_run: &dyn Fn(SeqId) -> bool,
    ) -> usize {
        let Some(seq) = self.sequence(id) else { return 0 };
        if budget == 0 || !may_run(id) {
            return 0;
        }
        let begins = !seq.begun;
        if begins && !self.begin(plan, id, may_run) {
            return 0;
        }
        let Some(seq) = self.sequence(id) else { return 0 };
        let (start, prompt_len) = (seq.computed, seq.prompt_len);
        let wanted = budget.min(prompt_len - start);
        let room = self.kv.reach(&seq.table).saturating_sub(start);
        // Only the oldest may take blocks from others; the rest make do with what is free.
        let len = if room >= wanted || self.is_oldest(id) { wanted } else { room };
        let samples = start + len == prompt_len;
        if len == 0 || !self.make_room(plan, id, start + len) {
            if begins {
                self.un_begin(plan, id);
            }
            return 0;
        }
        plan.rows.push(Row { id, start, len, prompt: true, begins, samples, draft: None });
        len
    }

    /// Takes the cached prefix of `id` and marks it as begun; `false` when it has to wait.
    fn begin(&mut self, plan: &mut ForwardPlan, id: SeqId, may_run: &dyn Fn(SeqId) -> bool) -> bool {
        let full = self.active >= self.shape.max_sequences || self.kv.free() == 0;
        if full || self.prefix_is_being_computed(id, may_run) {
            return false;
        }
        let seq = self.sequences[id.index()].as_mut().expect("called for a sequence in the engine");
        if seq.prefix_cache {
            let (table, filled, copy) = self.kv.take_prefix(&seq.hashes, &seq.tokens);
            for &hash in &seq.hashes[table.len()..] {
                self.pending.entry(hash).or_insert(id);
            }
            (seq.table, seq.computed, seq.cached) = (table, filled, filled);
            plan.copies.extend(copy);
            plan.cached_tokens += filled;
        }
        seq.begun = true;
        self.active += 1;
        true
    }

    /// Takes back [`Planner::begin`]: no block was left to compute into.
    fn un_begin(&mut self, plan: &mut ForwardPlan, id: SeqId) {
        let Some(seq) = self.sequences[id.index()].as_mut() else { return };
        plan.cached_tokens -= seq.cached;
        let table = std::mem::take(&mut seq.table);
        plan.copies.retain(|copy| table.ids().last() != Some(&copy.to));
        self.kv.release(table);
        (seq.computed, seq.cached, seq.begun) = (0, 0, false);
        self.pending.retain(|_, owner| *owner != id);
        self.active -= 1;
    }

    /// Whether waiting for the prefix that another sequence is computing saves `id` at least half of its work.
    fn prefix_is_being_computed(&self, id: SeqId, may_run: &dyn Fn(SeqId) -> bool) -> bool {
        let Some(seq) = self.sequence(id).filter(|seq| seq.prefix_cache) else { return false };
        let cached = self.kv.cached_prefix(&seq.hashes, &seq.tokens);
        let coming = seq.hashes[cached..]
            .iter()
            .take_while(|hash| self.pending.get(hash).is_some_and(|&owner| may_run(owner)));
        let saved = coming.count() * self.kv.block_tokens();
        saved > 0 && 2 * saved >= seq.prompt_len - cached * self.kv.block_tokens()
    }
}
