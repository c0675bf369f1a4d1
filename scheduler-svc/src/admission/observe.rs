//! What engines report: attachments, begun rounds, rejected and ended requests.

use firstlight_proto::clock::Stamp;

use super::{
    Admission,
    book::{Active, Place, Slot},
    budget::Policy,
    engines::Engine,
    lanes::LaneName,
    policy,
    report::{End, EngineId, Forward, Loss, Report, Requeued, Row, Step},
    request::{Key, Tokens},
    waiting::At,
};

impl Admission {
    pub(super) fn take_report(&mut self, now: Stamp, report: Report) -> Vec<Requeued> {
        match report {
            Report::Attached { engine, geometry } => {
                let requeued = self.lose(now, engine);
                self.engines.attach(engine, geometry, &self.budget);
                self.engines_changed(now);
                requeued
            }
            Report::Lost { engine } => self.lose(now, engine),
            Report::Draining { engine } => {
                // Whoever restarts it comes back with the like.
                if let Some(leaving) = self.engines.get(engine) {
                    self.departed.note(leaving.geometry, now);
                }
                self.engines.change(engine, &self.budget, Engine::drain);
                self.engines_changed(now);
                Vec::new()
            }
            Report::Begun { engine, seq } => {
                self.engines.change(engine, &self.budget, |engine| engine.begin(seq));
                Vec::new()
            }
            Report::Rejected { key } => {
                self.finish(now, key);
                Vec::new()
            }
            Report::Step(step) => self.step(now, step),
        }
    }

    /// An engine has come, has left, or takes no more: with the last one gone, everyone waits for the same.
    fn engines_changed(&mut self, now: Stamp) {
        self.waiting.set_engine_attached(&mut self.book, self.engines.any_open(), now);
        self.call_back(now, Self::fits_an_engine);
    }

    /// An attachment ended: its requests go back to the front, in order of arrival.
    fn lose(&mut self, now: Stamp, engine: EngineId) -> Vec<Requeued> {
        let Some(lost) = self.engines.detach(engine) else { return Vec::new() };
        self.departed.note(lost.geometry, now);
        self.controller.forget(engine);
        self.engines_changed(now);
        let mut members: Vec<Slot> = lost.members.iter(&self.book).collect();
        self.active -= members.len() as u32;
        members.sort_unstable_by_key(|slot| std::cmp::Reverse(self.book.get(*slot).arrival));
        let mut requeued: Vec<_> =
            members.into_iter().filter_map(|slot| self.requeue(now, slot, Loss::EngineLost)).collect();
        requeued.reverse();
        self.waiting.mark_heads(&mut self.book, now);
        requeued
    }

    fn step(&mut self, now: Stamp, step: Step) -> Vec<Requeued> {
        let Step { engine, rows, free_blocks, last_seq, forward } = step;
        if self.engines.get(engine).is_none() {
            return Vec::new();
        }
        let mut preempted = Vec::new();
        for row in rows {
            self.row(now, row, &mut preempted);
        }
        self.engines.change(engine, &self.budget, |account| account.report(free_blocks, last_seq));
        if let Some(forward) = forward {
            self.learn(engine, &forward);
        }
        preempted.sort_unstable_by_key(|slot| std::cmp::Reverse(self.book.get(*slot).arrival));
        let mut requeued: Vec<_> =
            preempted.into_iter().filter_map(|slot| self.requeue(now, slot, Loss::Preempted)).collect();
        requeued.reverse();
        self.waiting.mark_heads(&mut self.book, now);
        requeued
    }

    fn row(&mut self, now: Stamp, Row { key, tokens, end }: Row, preempted: &mut Vec<Slot>) {
        let Some(slot) = self.book.find(key) else { return };
        let entry = self.book.get_mut(slot);
        if !matches!(entry.place, Place::Active(_)) {
            return;
        }
        entry.generated = Tokens(entry.generated.0.saturating_add(tokens.0).min(entry.request.max_new.0));
        let tenant = entry.request.tenant;
        if self.budget.policy == Policy::Fair && tokens.0 > 0 {
            self.served.charge(tenant, tokens.0);
            if let Some(lane) = self.waiting.lanes.find(LaneName::Tenant(tenant)) {
                policy::rank(self, lane);
            }
        }
        match end {
            None => {}
            Some(End::Finished) => self.finish(now, key),
            Some(End::Preempted) => {
                self.part(slot);
                preempted.push(slot);
            }
        }
    }

    fn learn(&mut self, engine: EngineId, forward: &Forward) {
        self.speed.learn(forward);
        if self.budget.policy == Policy::Adaptive {
            let (target, most) = (self.budget.target_itl, self.budget.step_prefill_tokens);
            if self.controller.learn(engine, forward, target, most) {
                self.limits_version += 1;
            }
        }
    }

    /// An active request has left for good.
    fn finish(&mut self, now: Stamp, key: Key) {
        let Some(slot) = self.book.find(key) else { return };
        if let Place::Active(Active { attempt, .. }) = self.book.get(slot).place {
            self.part(slot);
            self.close_attempt(attempt, now, None);
            self.book.close(slot);
        }
    }

    /// Takes an active request off its engine's account.
    fn part(&mut self, slot: Slot) {
        let Place::Active(Active { engine, seq, promised, worst, .. }) = self.book.get(slot).place else {
            unreachable!("entry {slot:?} is a member of an engine but not active");
        };
        let book = &mut self.book;
        self.engines.change(engine, &self.budget, |account| {
            account.members.remove(book, slot);
            account.part(seq, promised, worst);
        });
        self.active -= 1;
    }

    /// Queues a request that is off its engine's account at the front of its lane; one that was withdrawn
    /// leaves instead.
    fn requeue(&mut self, now: Stamp, slot: Slot, why: Loss) -> Option<Requeued> {
        let key = self.book.key(slot);
        let entry = self.book.get_mut(slot);
        let Place::Active(Active { admitted, waited, withdrawn, attempt, .. }) = entry.place else {
            unreachable!("entry {slot:?} was a member of an engine but not active");
        };
        if withdrawn {
            self.book.close(slot);
            self.close_attempt(attempt, now, None);
            return None;
        }
        let generated = entry.generated;
        entry.preemptions = entry.preemptions.saturating_add(u8::from(why == Loss::Preempted));
        let mut brought = waited;
        if generated.0 > 0 {
            // The TTFT chain ended with the first token: a resume counts from here.
            brought = Default::default();
            (entry.behind, entry.engine_lost, entry.preempted) = (0, 0, 0);
        } else {
            let lost = now.since(admitted);
            match why {
                Loss::EngineLost => entry.engine_lost += lost,
                Loss::Preempted => entry.preempted += lost,
            }
        }
        self.close_attempt(attempt, now, Some(why));
        self.enqueue(now, slot, At::Front, &brought);
        Some(Requeued { key, why, admitted, generated })
    }
}
