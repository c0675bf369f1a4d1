//! The block for the token after the next one: a backend that runs ahead of the loop writes there before the loop asks
//! for it. Taken only from what is free, and given back before anyone gives way.

use super::{ForwardPlan, Planner, Row};

impl Planner {
    /// Grows the tables of the plan's decode rows by one position more, where the sequence goes on that far and a
    /// block is free for it. Never beyond what the sequence can come to hold.
    pub(super) fn look_ahead(&mut self, plan: &ForwardPlan) {
        for row in plan.rows.iter().filter(|row| !row.prompt && row.draft.is_none()) {
            let Some(seq) = self.sequences[row.id.index()].as_mut() else { continue };
            if seq.left_to_generate() > 1 {
                self.kv.extend(&mut seq.table, row.end() + 1);
            }
        }
    }

    /// Takes back every block that is neither for a row of `plan` nor filled. `false` when there is none.
    pub(super) fn take_back(&mut self, plan: &ForwardPlan) -> bool {
        let free = self.kv.free();
        for (index, seq) in self.sequences.iter_mut().enumerate() {
            let Some(seq) = seq.as_mut() else { continue };
            if seq.table.len() > self.kv.blocks_for(seq.computed) {
                let rows = plan.rows.iter().filter(|row| row.id.index() == index);
                let planned = rows.map(Row::end).max().unwrap_or_default();
                self.kv.shrink(&mut seq.table, planned.max(seq.computed));
            }
        }
        self.kv.free() > free
    }
}
