//! Sends the passes of a workload.

use std::sync::Arc;

use firstlight_proto::{clock::Clock, inject::Injections};
use tokio_util::sync::CancellationToken;

use super::workload::Workload;
use crate::{
    command::progress::Progress,
    flags::run::RunFlags,
    load::{
        drive::{Bench, drive},
        live::{Live, Patience},
    },
    report::validity::{CpuMeter, Fitness},
    selfcheck::{self, OwnLag},
    target::{Record, Target},
};

/// What the measured passes brought in.
#[derive(Debug)]
pub struct Sent {
    /// All requests that were fired.
    pub records: Vec<Record>,
    /// What it took of this client.
    pub fitness: Fitness,
    /// Why it ended early, unless by Ctrl-C.
    pub given_up: Option<String>,
}

/// What all passes of a run have in common.
#[derive(Debug)]
pub struct Passes<'a> {
    /// The command line.
    pub flags: &'a RunFlags,
    /// The load.
    pub workload: &'a Workload,
    /// Our clock.
    pub clock: Clock,
    /// Names the run in request ids.
    pub label: String,
    /// Ends the run early.
    pub stop: &'a CancellationToken,
}

impl Passes<'_> {
    /// What the client adds by itself; `None` when the check was not wanted.
    ///
    /// # Errors
    /// As [`selfcheck::check`].
    pub async fn self_check(&self) -> anyhow::Result<Option<OwnLag>> {
        if self.flags.no_self_check {
            return Ok(None);
        }
        selfcheck::check(self.clock, &self.workload.due(0), self.flags.load.channels).await.map(Some)
    }

    /// Sends the warm-up passes and forgets their records.
    pub async fn warm_up(&self, target: &Arc<Target>) {
        for i in 0..self.workload.warmups {
            let bench = self.bench(target, 1);
            let _shown = self.progress("warm-up", &bench);
            drive(&bench, self.workload.warmup(i, &self.label)).await;
        }
    }

    /// Sends the measured passes.
    pub async fn measure(&self, target: &Arc<Target>) -> Sent {
        let meter = CpuMeter::start(self.clock);
        let bench = self.bench(target, self.workload.repeats);
        let mut records = Vec::new();
        for i in 0..self.workload.repeats {
            if bench.stop.is_cancelled() {
                break;
            }
            let _shown = self.progress("run", &bench);
            records.extend(drive(&bench, self.workload.repeat(i, &self.label)).await);
        }
        Sent { records, fitness: meter.stop(), given_up: bench.live.given_up() }
    }

    /// A bench for `passes` passes of the load.
    fn bench(&self, target: &Arc<Target>, passes: usize) -> Bench {
        let stop = self.stop.child_token();
        let patience = self.flags.give_up_percent.map(|percent| Patience {
            most_missed: (percent / 100.0 * (self.workload.count * passes) as f64) as u64,
            of: self.workload.count * passes,
            slo: self.flags.output.slo,
            stop: stop.clone(),
        });
        Bench {
            target: Arc::clone(target),
            clock: self.clock,
            injections: Injections::new(self.flags.inject_delay.clone()),
            live: Arc::new(Live::new(patience)),
            stop,
        }
    }

    fn progress(&self, title: &str, bench: &Bench) -> Progress {
        let quiet = self.flags.output.quiet || self.flags.output.json;
        Progress::start(title.to_owned(), self.workload.count, Arc::clone(&bench.live), quiet)
    }
}
