//! One round, packed by trying everything.

use std::collections::BTreeMap;

use scheduler_svc::admission::{Cause, EngineId, Policy};

use super::{Model, ModelRound, Place, room::Left};

impl Model {
    /// Plans one round.
    pub fn plan(&mut self) -> Option<ModelRound> {
        self.engines.keys().find(|e| self.has_credit(**e))?;
        self.turn_away_heads();
        let engine = self.choose()?;
        let seq = self.engines[&engine].next_seq;
        let mut left = self.left(engine);
        let mut round = ModelRound { engine, seq, batch: Vec::new(), bound_by: None };
        let mut alone = BTreeMap::new();
        if self.budget.policy == Policy::Pack {
            self.pack(engine, &mut left, &mut round, &mut alone);
        } else {
            self.in_turn(engine, &mut left, &mut round);
        }
        self.charge_cuts(engine, &left, &round, &alone);
        self.mark_heads();
        if round.batch.is_empty() {
            return None;
        }
        self.engines.get_mut(&engine).expect("chosen").next_seq += 1;
        Some(round)
    }

    pub(super) fn in_turn(&mut self, engine: EngineId, left: &mut Left, round: &mut ModelRound) {
        while let Some(lane) = self.first_lane() {
            let head = self.lanes[&lane][0];
            if self.hopeless(&self.requests[head].request) {
                self.turn_away(head);
                continue;
            }
            let (tokens, blocks) = self.need(head, engine);
            round.bound_by = left.refuses(tokens, blocks);
            if round.bound_by.is_some() {
                return;
            }
            self.admit(head, left, round, (tokens, blocks));
        }
    }

    /// Tries every subset of the lookahead.
    pub(super) fn pack(
        &mut self,
        engine: EngineId,
        left: &mut Left,
        round: &mut ModelRound,
        alone: &mut BTreeMap<usize, Cause>,
    ) {
        while let Some(queue) = self.lanes.get(&0) {
            let examined = queue.iter().copied().take(self.budget.lookahead as usize);
            let gone: Vec<usize> = examined.filter(|r| self.hopeless(&self.requests[*r].request)).collect();
            if gone.is_empty() {
                break;
            }
            gone.into_iter().for_each(|r| self.turn_away(r));
        }
        let Some(queue) = self.lanes.get(&0).cloned() else { return };
        let head = queue[0];
        let every = self.budget.force_fifo_every;
        let passed_over_for = self.now - self.requests[head].headed_at;
        let oldest = self.budget.max_overtaking_age.as_nanos() as i64;
        let turn = (every > 0 && self.rounds_since_fifo_turn + 1 >= every)
            || (oldest > 0 && passed_over_for >= oldest);
        if turn {
            self.in_turn(engine, left, round);
            if self.requests[head].place != Place::Pending {
                self.rounds_since_fifo_turn = 0;
            }
            return;
        }
        let mut in_order = *left;
        let mut refused_at = None;
        for (place, r) in queue.iter().enumerate() {
            let (tokens, blocks) = self.need(*r, engine);
            if let Some(cause) = in_order.refuses(tokens, blocks) {
                let by_size = in_order.places > 0 && matches!(cause, Cause::TokenBudget | Cause::KvBlocks);
                refused_at = by_size.then_some(place);
                break;
            }
            in_order.take(tokens, blocks);
        }
        if refused_at.is_none_or(|place| place >= self.budget.lookahead as usize) {
            self.in_turn(engine, left, round);
        } else {
            self.best_of_lookahead(engine, left, round, alone);
        }
        self.rounds_since_fifo_turn += u32::from(!round.batch.is_empty());
    }

    pub(super) fn best_of_lookahead(
        &mut self,
        engine: EngineId,
        left: &mut Left,
        round: &mut ModelRound,
        alone: &mut BTreeMap<usize, Cause>,
    ) {
        let examined: Vec<usize> =
            self.lanes[&0].iter().copied().take(self.budget.lookahead as usize).collect();
        let needs: Vec<(u32, u32)> = examined.iter().map(|r| self.need(*r, engine)).collect();
        let most = left.places.min(left.active) as usize;
        let mut best: (u32, Vec<usize>) = (0, Vec::new());
        for set in 0..1_u32 << examined.len() {
            let members: Vec<usize> = (0..examined.len()).filter(|i| set >> i & 1 == 1).collect();
            let tokens: u32 = members.iter().map(|i| needs[*i].0).sum();
            let eligible = members.iter().all(|i| needs[*i].1 <= left.blocks);
            let better = tokens > best.0 || (tokens == best.0 && earlier(&members, &best.1));
            if eligible && members.len() <= most && tokens <= left.tokens && better {
                best = (tokens, members);
            }
        }
        let mut room = *left;
        let mut taken = Vec::new();
        let others = (0..examined.len()).filter(|i| !best.1.contains(i));
        for i in best.1.iter().copied().chain(others) {
            if room.refuses(needs[i].0, needs[i].1).is_none() {
                room.take(needs[i].0, needs[i].1);
                taken.push(i);
            }
        }
        taken.sort();
        for i in 0..examined.len() {
            if !taken.contains(&i) {
                let cause = room.refuses(needs[i].0, needs[i].1).expect("the set is maximal");
                round.bound_by.get_or_insert(cause);
                alone.insert(examined[i], cause);
            }
        }
        for i in taken {
            self.admit(examined[i], left, round, needs[i]);
        }
    }

    pub(super) fn admit(
        &mut self,
        r: usize,
        left: &mut Left,
        round: &mut ModelRound,
        (tokens, blocks): (u32, u32),
    ) {
        left.take(tokens, blocks);
        round.batch.push(r);
        self.leave(r);
        let request = &mut self.requests[r];
        let again = request.preemptions > 0 || request.generated > 0;
        request.place =
            Place::Active { engine: round.engine, seq: round.seq, admitted: self.now, promised: blocks };
        if self.budget.policy == Policy::Fair {
            self.turns += 1;
            let account = self.served.entry(request.request.tenant.0).or_insert((self.floor, 0));
            account.0 += if again { 0 } else { i64::from(tokens) };
            account.1 = self.turns;
            self.last_served = Some(request.request.tenant.0);
        }
    }

    pub(super) fn charge_cuts(
        &mut self,
        engine: EngineId,
        left: &Left,
        round: &ModelRound,
        alone: &BTreeMap<usize, Cause>,
    ) {
        let several = matches!(self.budget.policy, Policy::Priority | Policy::Fair);
        for (lane, queue) in self.lanes.clone() {
            let head = queue[0];
            let overtaken = round.batch.iter().any(|r| *r > head && self.lane_of(*r) != lane);
            let (tokens, blocks) = self.need(head, engine);
            let cut = if several && overtaken {
                Cause::FairShare
            } else {
                let own = left.refuses(tokens, blocks);
                own.or(round.bound_by).expect("whoever is left was refused, or waits for one who was")
            };
            for r in queue {
                self.requests[r].charged = alone.get(&r).copied().unwrap_or(cut);
            }
        }
    }
}

/// Whether one set takes an earlier arrival where the two first differ.
fn earlier(one: &[usize], other: &[usize]) -> bool {
    let first = one.iter().find(|i| !other.contains(i));
    let second = other.iter().find(|i| !one.contains(i));
    match (first, second) {
        (Some(a), Some(b)) => a < b,
        (a, _) => a.is_some(),
    }
}
