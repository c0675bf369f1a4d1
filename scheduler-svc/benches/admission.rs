//! What admission costs per request, for each policy and queue length: `make bench-admission`.
//!
//! `admit` is one offer plus its share of planning and observing a round of up to 16 requests; the queue
//! stays at its length. `withdraw` takes a random request out of the queue and offers another.

use std::time::Duration;

use divan::{Bencher, black_box};
use firstlight_proto::clock::Stamp;
use scheduler_svc::admission::{
    Admission, Blocks, Budget, Class, End, EngineId, Forward, Geometry, Key, Policy, Report, Request, Row,
    Step, Tenant, Tokens, Withdrawn,
};

const LENGTHS: [usize; 3] = [1_000, 100_000, 1_000_000];

fn main() {
    println!("{} bytes per pending request", Admission::BYTES_PER_REQUEST);
    divan::main();
}

#[divan::bench(args = LENGTHS, sample_count = 400, sample_size = 160)]
fn admit_fifo(bencher: Bencher, pending: usize) {
    admit(bencher, Policy::Fifo, pending);
}

#[divan::bench(args = LENGTHS, sample_count = 400, sample_size = 160)]
fn admit_pack(bencher: Bencher, pending: usize) {
    admit(bencher, Policy::Pack, pending);
}

#[divan::bench(args = LENGTHS, sample_count = 400, sample_size = 160)]
fn admit_priority(bencher: Bencher, pending: usize) {
    admit(bencher, Policy::Priority, pending);
}

#[divan::bench(args = LENGTHS, sample_count = 400, sample_size = 160)]
fn admit_fair(bencher: Bencher, pending: usize) {
    admit(bencher, Policy::Fair, pending);
}

#[divan::bench(args = LENGTHS, sample_count = 400, sample_size = 160)]
fn admit_deadline(bencher: Bencher, pending: usize) {
    admit(bencher, Policy::Deadline, pending);
}

#[divan::bench(args = LENGTHS, sample_count = 400, sample_size = 160)]
fn admit_adaptive(bencher: Bencher, pending: usize) {
    admit(bencher, Policy::Adaptive, pending);
}

#[divan::bench(args = LENGTHS, sample_count = 400, sample_size = 160)]
fn withdraw_fifo(bencher: Bencher, pending: usize) {
    withdraw(bencher, Policy::Fifo, pending);
}

#[divan::bench(args = LENGTHS, sample_count = 400, sample_size = 160)]
fn withdraw_fair(bencher: Bencher, pending: usize) {
    withdraw(bencher, Policy::Fair, pending);
}

#[divan::bench(args = LENGTHS, sample_count = 400, sample_size = 160)]
fn withdraw_deadline(bencher: Bencher, pending: usize) {
    withdraw(bencher, Policy::Deadline, pending);
}

fn admit(bencher: Bencher, policy: Policy, pending: usize) {
    let mut traffic = Traffic::new(policy, pending);
    bencher.bench_local(move || traffic.admit_one());
}

fn withdraw(bencher: Bencher, policy: Policy, pending: usize) {
    let mut traffic = Traffic::new(policy, pending);
    bencher.bench_local(move || traffic.withdraw_one());
}

const ENGINE: EngineId = EngineId(1);

/// Steady traffic: as many offers as admissions.
struct Traffic {
    core: Admission,
    now: Stamp,
    random: u64,
    queued: Vec<Key>,
    /// Requests of the last round, not yet replaced.
    admitted: Vec<Key>,
    replaced: usize,
    seq: u64,
}

impl Traffic {
    fn new(policy: Policy, pending: usize) -> Self {
        let budget = Budget {
            policy,
            prefill_max_batch_size: 16,
            prefill_max_tokens: Tokens(4_096),
            max_active_requests: 64,
            max_pending: u32::MAX,
            class_weights: (0..8).map(|class| (Class(class), u32::from(class) + 1)).collect(),
            ..Budget::default()
        };
        let now = Stamp::from_ns(0);
        let core = Admission::new(budget, now).expect("valid");
        let mut traffic =
            Self { core, now, random: 1, queued: Vec::new(), admitted: Vec::new(), replaced: 0, seq: 0 };
        let geometry = Geometry {
            context: Tokens(4_096),
            block_size: Tokens(16),
            kv_blocks: Blocks(100_000),
            free_blocks: Blocks(100_000),
            max_sequences: 1_024,
        };
        traffic.core.observe(now, Report::Attached { engine: ENGINE, geometry });
        for _ in 0..pending {
            traffic.offer();
        }
        // Everyone has seen a round: what follows is the steady state.
        (0..2_000).for_each(|_| traffic.admit_one());
        traffic
    }

    fn random(&mut self, below: u64) -> u64 {
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.random >> 33) % below
    }

    fn offer(&mut self) {
        self.now = self.now + Duration::from_micros(1);
        let due = Duration::from_secs(1_000_000) + Duration::from_micros(self.random(1_000_000_000));
        let request = Request {
            class: Class(self.random(8) as u16),
            tenant: Tenant(self.random(64) as u32),
            deadline: Some(self.now + due),
            ..Request::new(Tokens(16 + self.random(480) as u32), Tokens(64))
        };
        self.queued.push(self.core.offer(self.now, request).expect("there is room").key);
    }

    fn admit_one(&mut self) {
        self.offer();
        self.replaced += 1;
        if self.replaced < self.admitted.len() {
            return;
        }
        let end = |key: &Key| Row { key: *key, tokens: Tokens(1), end: Some(End::Finished) };
        let forward = Forward {
            start: self.now,
            end: self.now,
            prefill_tokens: Tokens(1_000),
            decode_rows: self.admitted.len() as u32,
        };
        let step = Step {
            engine: ENGINE,
            rows: self.admitted.iter().map(end).collect(),
            free_blocks: Blocks(100_000),
            last_seq: self.seq,
            forward: Some(forward),
        };
        self.core.observe(self.now, Report::Begun { engine: ENGINE, seq: self.seq });
        self.core.observe(self.now, Report::Step(step));
        let round = self.core.plan(self.now).expect("an engine has credit and requests wait");
        self.seq = round.seq;
        self.replaced = 0;
        self.admitted.clear();
        self.admitted.extend(round.batch.iter().map(|admitted| admitted.key));
        black_box(round);
    }

    fn withdraw_one(&mut self) {
        loop {
            let at = self.random(self.queued.len() as u64) as usize;
            let key = self.queued.swap_remove(at);
            if matches!(self.core.withdraw(self.now, key), Withdrawn::Pending(_)) {
                break;
            }
        }
        self.offer();
    }
}
