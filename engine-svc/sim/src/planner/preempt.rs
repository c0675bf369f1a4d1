//! Who gives way when the pool runs dry: the youngest. So the oldest sequence can always finish.

use super::{ForwardPlan, Planner, SeqId};

impl Planner {
    /// Grows the blocks of `id` to hold `positions`, taking from the youngest sequences as needed. `false` when
    /// `id` was itself the youngest and gave way.
    pub(super) fn make_room(&mut self, plan: &mut ForwardPlan, id: SeqId, positions: usize) -> bool {
        loop {
            let Some(seq) = self.sequences[id.index()].as_mut() else { return false };
            if self.kv.extend(&mut seq.table, positions) {
                return true;
            }
            if self.take_back(plan) {
                continue;
            }
            let youngest = self.begun().max_by_key(|&(age, _)| age).map(|(_, id)| id);
            let Some(youngest) = youngest else { return false };
            self.remove(youngest);
            plan.rows.retain(|row| row.id != youngest);
            plan.preempted.push(youngest);
        }
    }

    /// Whether no sequence that has begun is older than `id`.
    pub(super) fn is_oldest(&self, id: SeqId) -> bool {
        let age = self.sequence(id).map(|seq| seq.age);
        self.begun().all(|(other, _)| Some(other) >= age)
    }

    fn begun(&self) -> impl Iterator<Item = (u64, SeqId)> {
        let indexed = self.sequences.iter().enumerate();
        indexed
            .filter_map(|(i, seq)| seq.as_ref().filter(|seq| seq.begun).map(|seq| (seq.age, SeqId(i as u32))))
    }
}
