//! The loop: take commands, run the step's forwards, publish one `Step` after each; parked when idle.

use std::{
    collections::HashMap,
    sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError},
    thread,
    time::Duration,
};

use firstlight_proto::{error::Failure, inject::Segment, v1};
use firstlight_sim::{
    kv::KvPool,
    planner::{End, ForwardKind, ForwardPlan, Planner},
    wait::DecodeFirstClock,
};
use slab::Slab;
use tonic::Status;

use super::{
    AttachmentKey, Command, Snapshot, StepConfig, StepError, attachment::Attachment, execute::execute,
    running::Running,
};
use crate::{backend::Backend, metrics::EngineMetrics};

/// How often a loop that stands still because of slow readers looks whether they have caught up.
const CONGESTED_POLL: Duration = Duration::from_millis(1);

/// Everything the step loop owns.
pub(super) struct StepLoop {
    pub(super) config: StepConfig,
    commands: Receiver<Command>,
    pub(super) backend: Box<dyn Backend>,
    pub(super) planner: Planner,
    /// Indexed by [`SeqId`](firstlight_sim::planner::SeqId).
    pub(super) running: Slab<Running>,
    pub(super) attachments: HashMap<AttachmentKey, Attachment>,
    pub(super) next_batch: u64,
    pub(super) decode_first: DecodeFirstClock,
    pub(super) metrics: EngineMetrics,
    pub(super) phase: Phase,
}

#[derive(PartialEq)]
pub(super) enum Phase {
    Serving,
    Draining,
    Stopped,
}

impl StepLoop {
    pub(super) fn new(config: StepConfig, backend: Box<dyn Backend>, commands: Receiver<Command>) -> Self {
        let kv = backend.kv();
        let pool = KvPool::new(kv.blocks, kv.block_tokens);
        let planner = Planner::new(config.shape.clone(), config.limits, pool);
        let mut metrics = EngineMetrics::new();
        metrics.counts.kv_blocks = kv.blocks as u64;
        Self {
            config,
            commands,
            backend,
            planner,
            running: Slab::new(),
            attachments: HashMap::new(),
            next_batch: 0,
            decode_first: DecodeFirstClock::default(),
            metrics,
            phase: Phase::Serving,
        }
    }

    /// Runs until told to stop, until drained, or until the backend fails.
    pub(super) fn run(mut self) -> Result<(), StepError> {
        self.report_counts();
        let mut idle = true;
        while self.phase != Phase::Stopped {
            if idle {
                self.park();
            }
            let (mut ran, mut told) = (false, false);
            for &kind in self.planner.step() {
                ran |= self.forward(kind)?;
                self.detach_lost();
                told |= self.take_commands();
            }
            // What was told after a forward was planned may be work for it.
            idle = !ran && !told;
            self.metrics.counts.steps += u64::from(ran);
            self.end_stalled();
            if self.phase == Phase::Draining && self.planner.is_idle() {
                self.phase = Phase::Stopped;
            }
        }
        for (_, attachment) in self.attachments.drain() {
            attachment.outgoing.end(stopping());
        }
        Ok(())
    }

    /// Takes in what has arrived, without waiting. Whether anything had.
    fn take_commands(&mut self) -> bool {
        let mut told = false;
        loop {
            match self.commands.try_recv() {
                Ok(command) => self.obey(command),
                Err(TryRecvError::Empty) => return told,
                // Nobody is left who could command or read.
                Err(TryRecvError::Disconnected) => {
                    self.phase = Phase::Stopped;
                    return told;
                }
            }
            told = true;
        }
    }

    /// Sleeps until a command arrives; with slow readers only briefly, to see whether they have caught up.
    fn park(&mut self) {
        self.report_counts();
        let congested = self.attachments.values().any(|attachment| attachment.outgoing.is_congested());
        let command = match congested {
            true => self.commands.recv_timeout(CONGESTED_POLL),
            false => self.commands.recv().map_err(|_| RecvTimeoutError::Disconnected),
        };
        match command {
            Ok(command) => {
                self.obey(command);
                self.take_commands();
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => self.phase = Phase::Stopped,
        }
    }

    fn obey(&mut self, command: Command) {
        match command {
            Command::Attach { key, outgoing, limits } => self.attach(key, outgoing, limits),
            Command::Admit { key, seq, received, sequences } => self.admit(key, seq, received, sequences),
            Command::Cancel { key, handles } => self.cancel(key, &handles),
            Command::SetLimits(limits) => self.planner.set_limits(limits),
            Command::Detach { key, status } => self.detach(key, status),
            Command::Drain => self.drain(),
            Command::Stop => self.phase = Phase::Stopped,
            Command::Inspect(reply) => {
                // The asker may have given up.
                let _ = reply.send(self.snapshot());
            }
        }
        self.detach_lost();
    }

    /// One forward of `kind`, if there is something to run.
    fn forward(&mut self, kind: ForwardKind) -> Result<bool, StepError> {
        let Some(mut plan) = self.plan(kind) else { return Ok(false) };
        for &id in &plan.preempted {
            self.metrics.counts.preemptions += 1;
            self.finish(id, None, End::Preempted);
        }
        if plan.rows.is_empty() {
            self.publish(&v1::Step::default());
            return Ok(true);
        }
        let start = self.config.clock.now();
        self.begin(&plan, start);
        let put_ahead = kind == ForwardKind::Decode && self.planner.limits().decode_first;
        if put_ahead {
            self.config.blocked.update(|blocked| blocked.behind_decode_first(start.ns(), true));
        }
        let prefills = plan.rows.iter().any(|row| row.prompt);
        if let Some(delay) = self.config.injections.at(Segment::Prefill).filter(|_| prefills) {
            thread::sleep(delay);
        }
        let executed = execute(self.backend.as_mut(), &self.planner, &self.running, &mut plan)?;
        let end = self.config.clock.now();
        for id in executed.failed {
            self.planner.cancel(id);
            self.finish(id, None, End::Failed);
        }
        if put_ahead {
            self.decode_first.ran(start.ns(), end.ns());
            self.config.blocked.update(|blocked| blocked.behind_decode_first(end.ns(), false));
        }
        for row in plan.rows.iter().filter(|row| row.prompt) {
            self.running[row.id.0 as usize].prefilled(row, start, end);
        }
        let (mut tokens, mut drafted) = (0, 0);
        for outcome in self.planner.complete(&plan, &executed.sampled) {
            tokens += usize::from(outcome.token.is_some());
            drafted += usize::from(outcome.drafted);
            self.take_outcome(&outcome, end);
        }
        self.metrics.generated(tokens, drafted);
        self.report(&plan, start, end);
        Ok(true)
    }

    fn plan(&mut self, kind: ForwardKind) -> Option<ForwardPlan> {
        let congested = |attachment: &Attachment| attachment.outgoing.is_congested();
        if !self.attachments.values().any(congested) {
            return self.planner.plan(kind, &|_| true);
        }
        let (running, attachments) = (&self.running, &self.attachments);
        self.planner.plan(kind, &|id| {
            attachments.get(&running[id.0 as usize].attachment).is_some_and(|a| !congested(a))
        })
    }

    fn snapshot(&self) -> Snapshot {
        Snapshot {
            total_blocks: self.planner.kv().total(),
            free_blocks: self.planner.kv().free(),
            cached_blocks: self.planner.kv().cached(),
            active: self.planner.active(),
            inbox: self.planner.inbox(),
            attachments: self.attachments.len(),
            integrity: self.planner.check_integrity().err().map(|error| error.to_string()),
        }
    }
}

fn stopping() -> Status {
    let reason = "the engine is stopping".to_owned();
    Failure::Unavailable { reason, retry_after: Duration::from_secs(1) }.into()
}
