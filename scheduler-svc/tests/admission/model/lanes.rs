//! Who waits behind whom.

use firstlight_proto::clock::Stamp;
use scheduler_svc::admission::{Cause, Policy, Request};

use super::{LaneName, Model, Place};

impl Model {
    pub(super) fn lane_of(&self, r: usize) -> LaneName {
        match self.budget.policy {
            Policy::Priority => self.requests[r].request.class.0.into(),
            Policy::Fair => self.requests[r].request.tenant.0,
            _ => 0,
        }
    }

    pub(super) fn rank(&self, lane: LaneName) -> (i64, u64, u64) {
        let head = self.lanes[&lane][0];
        match self.budget.policy {
            Policy::Fair => {
                let (tokens, turn) = self.served.get(&lane).copied().unwrap_or((self.floor, 0));
                (tokens, turn, head as u64)
            }
            Policy::Priority => {
                let weight = i64::from(self.budget.weight(self.requests[head].request.class));
                let aging = self.budget.aging.as_nanos() as i64;
                let come = self.requests[head].arrived - weight * aging;
                (if aging == 0 { -weight } else { come }, head as u64, 0)
            }
            _ => (0, 0, 0),
        }
    }

    pub(super) fn first_lane(&self) -> Option<LaneName> {
        self.lanes.keys().copied().min_by_key(|lane| self.rank(*lane))
    }

    /// Policy `deadline`: refuses heads that are too late. And those set aside for whom no engine came back.
    pub fn turn_away_late(&mut self) {
        if self.budget.policy == Policy::Deadline {
            self.turn_away_heads();
        }
        for r in self.aside.clone() {
            if !self.is_awaited(&self.requests[r].request) {
                self.leave(r);
                self.turned_away.push(r);
            }
        }
    }

    pub(super) fn turn_away_heads(&mut self) {
        while let Some(lane) = self.first_lane() {
            let head = self.lanes[&lane][0];
            if !self.hopeless(&self.requests[head].request) {
                break;
            }
            self.turn_away(head);
        }
        self.mark_heads();
    }

    pub(super) fn turn_away(&mut self, r: usize) {
        self.leave(r);
        let request = self.requests[r].request;
        if !self.never_fits(&request) || !self.is_awaited(&request) {
            self.turned_away.push(r);
            return;
        }
        self.aside.push(r);
        let request = &mut self.requests[r];
        (request.place, request.charged, request.headed) = (Place::Pending, Cause::NoEngine, true);
    }

    /// Queues those set aside that `which` picks anew, at the front.
    pub(super) fn call_back(&mut self, which: impl Fn(&Self, &Request) -> bool) {
        let mut back = self.aside.clone();
        back.retain(|r| which(self, &self.requests[*r].request));
        back.sort();
        for r in back.into_iter().rev() {
            self.leave(r);
            let idle = self.idle();
            let request = &mut self.requests[r];
            (request.place, request.charged, request.headed) = (Place::Pending, idle, false);
            self.join(r, true);
        }
        self.mark_heads();
    }

    pub(super) fn join(&mut self, r: usize, at_front: bool) {
        let lane = self.lane_of(r);
        if self.budget.policy == Policy::Fair && !self.lanes.contains_key(&lane) {
            let least = self
                .lanes
                .keys()
                .map(|lane| self.served.get(lane).copied().unwrap_or((self.floor, 0)).0)
                .min();
            let last = self.last_served.map(|tenant| self.served[&tenant].0);
            self.floor = self.floor.max(least.or(last).unwrap_or(0));
            let account = self.served.entry(lane).or_default();
            account.0 = account.0.max(self.floor);
        }
        let queue = self.lanes.entry(lane).or_default();
        queue.insert(if at_front { 0 } else { queue.len() }, r);
        if self.budget.policy == Policy::Deadline {
            let requests = &self.requests;
            let last = Stamp::from_ns(i64::MAX);
            queue.sort_by_key(|r| match requests[*r].request.deadline {
                Some(deadline) => (deadline, *r),
                None => (last, 0),
            });
        }
    }

    pub(super) fn leave(&mut self, r: usize) {
        let lane = self.lane_of(r);
        if let Some(place) = self.aside.iter().position(|other| *other == r) {
            self.aside.remove(place);
        } else {
            let queue = self.lanes.get_mut(&lane).expect("pending requests are in a lane");
            queue.retain(|other| *other != r);
            if queue.is_empty() {
                self.lanes.remove(&lane);
            }
        }
        self.requests[r].place = Place::Gone;
    }

    pub(super) fn requeue(&mut self, r: usize, preempted: bool) {
        let (now, idle) = (self.now, self.idle());
        let request = &mut self.requests[r];
        let Place::Active { admitted, .. } = request.place else { return };
        if request.withdrawn {
            request.place = Place::Gone;
            return;
        }
        request.place = Place::Pending;
        request.preemptions += u32::from(preempted);
        request.charged = idle;
        request.headed = false;
        if request.generated > 0 {
            request.by_cause.clear();
            (request.behind, request.engine_lost, request.preempted) = (0, 0, 0);
        } else if preempted {
            request.preempted += now - admitted;
        } else {
            request.engine_lost += now - admitted;
        }
        self.join(r, true);
    }

    pub(super) fn mark_heads(&mut self) {
        for queue in self.lanes.values() {
            let head = &mut self.requests[queue[0]];
            if !head.headed {
                (head.headed, head.headed_at) = (true, self.now);
            }
        }
    }
}
