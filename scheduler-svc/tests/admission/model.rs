//! The admission core once more, written as plainly as DESIGN states it: every request carries a
//! stopwatch for each cause, and every step of time visits every request. Slow, and easy to believe.

use std::collections::BTreeMap;

use firstlight_proto::clock::Stamp;
use scheduler_svc::admission::{
    Blocks, Budget, Cause, End, EngineId, Geometry, KvPromise, Policy, RETURN_GRACE, Report, Request,
};

/// What the model says a round holds: requests by their number, in order.
#[derive(Debug, PartialEq)]
pub struct ModelRound {
    pub engine: EngineId,
    pub seq: u64,
    pub batch: Vec<usize>,
    pub bound_by: Option<Cause>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Place {
    Pending,
    Active { engine: EngineId, seq: u64, admitted: i64, promised: u32 },
    Gone,
}

/// A request with its stopwatches.
#[derive(Debug)]
pub struct ModelRequest {
    pub request: Request,
    pub place: Place,
    pub generated: u32,
    pub by_cause: BTreeMap<Cause, i64>,
    pub behind: i64,
    pub engine_lost: i64,
    pub preempted: i64,
    arrived: i64,
    preemptions: u32,
    charged: Cause,
    headed: bool,
    /// When it came to the head.
    headed_at: i64,
    withdrawn: bool,
}

#[derive(Debug)]
struct ModelEngine {
    geometry: Geometry,
    free: u32,
    last_seq: u64,
    next_seq: u64,
    begun: u64,
    draining: bool,
}

/// Whose lane: a class, a tenant, or 0.
type LaneName = u32;

#[derive(Debug)]
pub struct Model {
    pub now: i64,
    pub budget: Budget,
    pub requests: Vec<ModelRequest>,
    pub blocked: BTreeMap<Cause, i64>,
    pub turned_away: Vec<usize>,
    lanes: BTreeMap<LaneName, Vec<usize>>,
    engines: BTreeMap<EngineId, ModelEngine>,
    /// Engines that were lost, and when.
    departed: Vec<(Geometry, i64)>,
    /// Requests that wait for one of those.
    aside: Vec<usize>,
    served: BTreeMap<u32, (i64, u64)>,
    floor: i64,
    last_served: Option<u32>,
    turns: u64,
    rounds_since_fifo_turn: u32,
}

/// What is left of each limit.
#[derive(Clone, Copy)]
struct Left {
    active: u32,
    blocks: u32,
    tokens: u32,
    places: u32,
    first: bool,
}

impl Left {
    fn refuses(&self, tokens: u32, blocks: u32) -> Option<Cause> {
        let refusals = [
            (self.active == 0, Cause::MaxActive),
            (blocks > self.blocks, Cause::KvBlocks),
            (tokens > self.tokens && !self.first, Cause::TokenBudget),
            (self.places == 0, Cause::BatchSize),
        ];
        refusals.into_iter().find(|(refuses, _)| *refuses).map(|(_, cause)| cause)
    }

    fn take(&mut self, tokens: u32, blocks: u32) {
        self.active -= 1;
        self.blocks -= blocks;
        self.tokens = self.tokens.saturating_sub(tokens);
        self.places -= 1;
        self.first = false;
    }
}

impl Model {
    pub fn new(budget: Budget, now: i64) -> Self {
        Self {
            now,
            budget,
            requests: Vec::new(),
            blocked: BTreeMap::new(),
            turned_away: Vec::new(),
            lanes: BTreeMap::new(),
            engines: BTreeMap::new(),
            departed: Vec::new(),
            aside: Vec::new(),
            served: BTreeMap::new(),
            floor: 0,
            last_served: None,
            turns: 0,
            rounds_since_fifo_turn: 0,
        }
    }

    pub fn pending(&self) -> Vec<usize> {
        (0..self.requests.len()).filter(|r| self.requests[*r].place == Place::Pending).collect()
    }

    pub fn active(&self) -> Vec<usize> {
        let active = |r: &usize| matches!(self.requests[*r].place, Place::Active { .. });
        (0..self.requests.len()).filter(active).collect()
    }

    /// Lets time pass: every pending request is charged to its cause.
    pub fn advance(&mut self, ns: i64) {
        self.now += ns;
        for r in self.pending() {
            let request = &mut self.requests[r];
            *request.by_cause.entry(request.charged).or_default() += ns;
            *self.blocked.entry(request.charged).or_default() += ns;
            request.behind += if request.headed { 0 } else { ns };
        }
    }

    /// The number of the request, unless the door refuses it.
    pub fn offer(&mut self, request: Request) -> Option<usize> {
        let refused =
            if self.never_fits(&request) { !self.is_awaited(&request) } else { self.late(&request) };
        if refused || self.pending().len() >= self.budget.max_pending as usize {
            return None;
        }
        let r = self.requests.len();
        self.requests.push(ModelRequest {
            request,
            place: Place::Pending,
            generated: 0,
            by_cause: BTreeMap::new(),
            behind: 0,
            engine_lost: 0,
            preempted: 0,
            arrived: self.now,
            preemptions: 0,
            charged: self.idle(),
            headed: false,
            headed_at: 0,
            withdrawn: false,
        });
        self.join(r, false);
        self.mark_heads();
        Some(r)
    }

    pub fn withdraw(&mut self, r: usize) {
        match self.requests[r].place {
            Place::Pending => self.leave(r),
            Place::Active { .. } => self.requests[r].withdrawn = true,
            Place::Gone => {}
        }
        self.mark_heads();
    }

    /// Takes a report in; `number` finds the request a key names.
    pub fn observe(&mut self, report: &Report, number: impl Fn(scheduler_svc::admission::Key) -> usize) {
        match report {
            Report::Attached { engine, geometry } => {
                let first = !self.any_open();
                let account = ModelEngine {
                    geometry: *geometry,
                    free: geometry.free_blocks.0,
                    last_seq: 0,
                    next_seq: 1,
                    begun: 0,
                    draining: false,
                };
                self.engines.insert(*engine, account);
                if first {
                    self.charge_all(Cause::EngineBusy);
                }
                self.call_back(|model, request| !model.never_fits(request));
            }
            Report::Lost { engine } => {
                let was_open = self.any_open();
                let Some(lost) = self.engines.remove(engine) else { return };
                self.departed.push((lost.geometry, self.now));
                if was_open && !self.any_open() {
                    self.charge_all(Cause::NoEngine);
                }
                self.call_back(|model, request| !model.never_fits(request));
                let on_it = |r: &usize| matches!(self.requests[*r].place, Place::Active { engine: e, .. } if e == *engine);
                let lost: Vec<usize> = self.active().into_iter().filter(on_it).collect();
                lost.into_iter().rev().for_each(|r| self.requeue(r, false));
            }
            Report::Draining { engine } => {
                let was_open = self.any_open();
                if let Some(account) = self.engines.get_mut(engine) {
                    account.draining = true;
                    self.departed.push((account.geometry, self.now));
                }
                if was_open && !self.any_open() {
                    self.charge_all(Cause::NoEngine);
                }
                self.call_back(|model, request| !model.never_fits(request));
            }
            Report::Begun { engine, seq } => {
                if let Some(account) = self.engines.get_mut(engine) {
                    account.begun = account.begun.max(*seq);
                }
            }
            Report::Rejected { key } => self.requests[number(*key)].place = Place::Gone,
            Report::Step(step) => {
                let mut preempted = Vec::new();
                for row in &step.rows {
                    let r = number(row.key);
                    let request = &mut self.requests[r];
                    let Place::Active { .. } = request.place else { continue };
                    request.generated = (request.generated + row.tokens.0).min(request.request.max_new.0);
                    if self.budget.policy == Policy::Fair && row.tokens.0 > 0 {
                        let account = self.served.entry(request.request.tenant.0).or_insert((self.floor, 0));
                        account.0 += i64::from(row.tokens.0);
                    }
                    match row.end {
                        Some(End::Finished) => request.place = Place::Gone,
                        Some(End::Preempted) => preempted.push(r),
                        None => {}
                    }
                }
                let account = self.engines.get_mut(&step.engine).expect("steps come from attached engines");
                account.free = step.free_blocks.0;
                account.last_seq = account.last_seq.max(step.last_seq);
                preempted.sort();
                preempted.into_iter().rev().for_each(|r| self.requeue(r, true));
            }
        }
        self.mark_heads();
    }

    pub fn set_budget(&mut self, budget: Budget) {
        let moved = budget.policy != self.budget.policy;
        if moved {
            self.call_back(|_, _| true);
        }
        self.budget = budget;
        self.call_back(|model, request| !model.never_fits(request));
        if moved {
            self.served.clear();
            (self.floor, self.last_served) = (0, None);
            self.lanes.clear();
            for r in self.pending() {
                self.join(r, false);
            }
            self.charge_all(self.idle());
        }
        self.mark_heads();
    }

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

    /// Promised blocks of an engine's active requests, in the worst case.
    pub fn worst(&self, engine: EngineId) -> u64 {
        let blocks = |r: &usize| match self.requests[*r].place {
            Place::Active { engine: e, .. } if e == engine => u64::from(self.worst_of(*r, engine)),
            _ => 0,
        };
        self.active().iter().map(blocks).sum()
    }

    fn worst_of(&self, r: usize, engine: EngineId) -> u32 {
        let block = self.engines[&engine].geometry.block_size.0;
        self.requests[r].request.positions().0.div_ceil(block)
    }

    fn pool(&self, engine: EngineId) -> u32 {
        let blocks = self.engines[&engine].geometry.kv_blocks.0;
        self.budget.kv_blocks.map_or(blocks, |Blocks(most)| most.min(blocks))
    }

    fn could_hold(&self, request: &Request, engine: EngineId) -> bool {
        self.could_be_held(request, &self.engines[&engine].geometry)
    }

    fn could_be_held(&self, request: &Request, by: &Geometry) -> bool {
        let positions = request.positions().0;
        let pool = self.budget.kv_blocks.map_or(by.kv_blocks, |most| most.min(by.kv_blocks));
        positions <= by.context.0 && positions.div_ceil(by.block_size.0) <= pool.0
    }

    fn never_fits(&self, request: &Request) -> bool {
        let open = |(_, account): &(&EngineId, &ModelEngine)| !account.draining;
        self.any_open() && !self.engines.iter().filter(open).any(|(e, _)| self.could_hold(request, *e))
    }

    /// An engine that could hold it was lost lately.
    fn is_awaited(&self, request: &Request) -> bool {
        let lately = |lost: i64| self.now < lost + RETURN_GRACE.as_nanos() as i64;
        self.departed.iter().any(|(kind, lost)| lately(*lost) && self.could_be_held(request, kind))
    }

    fn late(&self, request: &Request) -> bool {
        self.budget.policy == Policy::Deadline
            && request.deadline.is_some_and(|deadline| Stamp::from_ns(self.now) > deadline)
    }

    fn hopeless(&self, request: &Request) -> bool {
        self.never_fits(request) || self.late(request)
    }

    fn need(&self, r: usize, engine: EngineId) -> (u32, u32) {
        let ModelRequest { request, generated, preemptions, .. } = &self.requests[r];
        let tokens = request.prompt.0 + generated;
        if !self.could_hold(request, engine) {
            return (tokens, u32::MAX);
        }
        let positions = match self.budget.kv_promise {
            KvPromise::Reserve => request.positions().0,
            KvPromise::Optimistic => {
                let margin = self.budget.kv_margin.0.max(1) * 2_u32.pow(*preemptions);
                (tokens + margin).min(request.positions().0)
            }
        };
        (tokens, positions.div_ceil(self.engines[&engine].geometry.block_size.0))
    }

    fn on(&self, engine: EngineId) -> Vec<usize> {
        let on_it =
            |r: &usize| matches!(self.requests[*r].place, Place::Active { engine: e, .. } if e == engine);
        self.active().into_iter().filter(on_it).collect()
    }

    fn blocks_left(&self, engine: EngineId) -> u32 {
        let account = &self.engines[&engine];
        let pool = u64::from(self.pool(engine));
        let left = match self.budget.kv_promise {
            KvPromise::Reserve => pool.saturating_sub(self.worst(engine)),
            KvPromise::Optimistic => {
                let unseen = |r: &usize| match self.requests[*r].place {
                    Place::Active { seq, promised, .. } if seq > account.last_seq => u64::from(promised),
                    _ => 0,
                };
                let in_flight: u64 = self.on(engine).iter().map(unseen).sum();
                let withheld = u64::from(account.geometry.kv_blocks.0) - pool;
                u64::from(account.free).saturating_sub(withheld + in_flight)
            }
        };
        left as u32
    }

    fn left(&self, engine: EngineId) -> Left {
        let active = self.budget.max_active_requests.saturating_sub(self.active().len() as u32);
        let sequences = self.engines[&engine].geometry.max_sequences;
        Left {
            active: active.min(sequences.saturating_sub(self.on(engine).len() as u32)),
            blocks: self.blocks_left(engine),
            tokens: self.budget.prefill_max_tokens.0,
            places: self.budget.prefill_max_batch_size,
            first: true,
        }
    }

    fn has_credit(&self, engine: EngineId) -> bool {
        let account = &self.engines[&engine];
        let unbegun = (account.begun + 1..account.next_seq).filter(|seq| {
            let of_round =
                |r: &usize| matches!(self.requests[*r].place, Place::Active { seq: s, .. } if s == *seq);
            self.on(engine).iter().any(of_round)
        });
        !account.draining && (unbegun.count() as u32) < self.budget.admit_ahead
    }

    fn any_open(&self) -> bool {
        self.engines.values().any(|account| !account.draining)
    }

    fn choose(&self) -> Option<EngineId> {
        let next = self.first_lane().map(|lane| self.requests[self.lanes[&lane][0]].request);
        let credited: Vec<EngineId> = self.engines.keys().copied().filter(|e| self.has_credit(*e)).collect();
        let can: Vec<EngineId> =
            credited.iter().copied().filter(|e| next.is_none_or(|next| self.could_hold(&next, *e))).collect();
        let of = if can.is_empty() { credited } else { can };
        of.into_iter().min_by_key(|e| {
            let geometry = &self.engines[e].geometry;
            let full = self.on(*e).len() as u32 >= geometry.max_sequences;
            let room = u64::from(self.blocks_left(*e)) * u64::from(geometry.block_size.0);
            (full, std::cmp::Reverse(room), self.on(*e).len(), *e)
        })
    }

    fn lane_of(&self, r: usize) -> LaneName {
        match self.budget.policy {
            Policy::Priority => self.requests[r].request.class.0.into(),
            Policy::Fair => self.requests[r].request.tenant.0,
            _ => 0,
        }
    }

    fn rank(&self, lane: LaneName) -> (i64, u64, u64) {
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

    fn first_lane(&self) -> Option<LaneName> {
        self.lanes.keys().copied().min_by_key(|lane| self.rank(*lane))
    }

    fn in_turn(&mut self, engine: EngineId, left: &mut Left, round: &mut ModelRound) {
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
    fn pack(
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

    fn best_of_lookahead(
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

    fn admit(&mut self, r: usize, left: &mut Left, round: &mut ModelRound, (tokens, blocks): (u32, u32)) {
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

    fn charge_cuts(
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

    fn turn_away_heads(&mut self) {
        while let Some(lane) = self.first_lane() {
            let head = self.lanes[&lane][0];
            if !self.hopeless(&self.requests[head].request) {
                break;
            }
            self.turn_away(head);
        }
        self.mark_heads();
    }

    fn turn_away(&mut self, r: usize) {
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
    fn call_back(&mut self, which: impl Fn(&Self, &Request) -> bool) {
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

    fn join(&mut self, r: usize, at_front: bool) {
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

    fn leave(&mut self, r: usize) {
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

    fn requeue(&mut self, r: usize, preempted: bool) {
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

    fn mark_heads(&mut self) {
        for queue in self.lanes.values() {
            let head = &mut self.requests[queue[0]];
            if !head.headed {
                (head.headed, head.headed_at) = (true, self.now);
            }
        }
    }

    fn idle(&self) -> Cause {
        if self.any_open() { Cause::EngineBusy } else { Cause::NoEngine }
    }

    fn charge_all(&mut self, cause: Cause) {
        for r in self.pending() {
            if !self.aside.contains(&r) {
                self.requests[r].charged = cause;
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
