//! Decode rows: groups of at most `max_batch_size` sequences, in turn.

use super::{ForwardPlan, Planner, Row, SeqId};

impl Planner {
    /// Adds the next group's rows. When no block is free for one, the youngest sequence gives way.
    pub(super) fn add_decode_rows(&mut self, plan: &mut ForwardPlan, may_run: &dyn Fn(SeqId) -> bool) {
        let group = self.next_group(may_run);
        // Oldest first: whoever gives way is then never planned already.
        let aged = |&id: &SeqId| self.sequence(id).map(|seq| (seq.age, id));
        let mut by_age: Vec<_> = group.iter().filter_map(aged).collect();
        by_age.sort_unstable();
        plan.rows.reserve(by_age.len());
        for (_, id) in by_age {
            let Some(seq) = self.sequence(id) else { continue };
            let position = seq.computed;
            if self.make_room(plan, id, position + 1) {
                plan.rows.push(Row {
                    id,
                    start: position,
                    len: 1,
                    prompt: false,
                    begins: false,
                    samples: true,
                    draft: None,
                });
            }
        }
        self.decoding.extend(group.into_iter().filter(|&id| self.sequences[id.index()].is_some()));
    }

    /// Takes the next group out of the rotation, in turn.
    fn next_group(&mut self, may_run: &dyn Fn(SeqId) -> bool) -> Vec<SeqId> {
        let mut group = Vec::with_capacity(self.limits.max_batch_size.min(self.decoding.len()));
        let mut skipped = Vec::new();
        while group.len() < self.limits.max_batch_size {
            match self.decoding.pop_front() {
                Some(id) if may_run(id) => group.push(id),
                Some(id) => skipped.push(id),
                None => break,
            }
        }
        for id in skipped.into_iter().rev() {
            self.decoding.push_front(id);
        }
        group
    }
}
