//! Sends a run and gathers its records.

use std::{sync::Arc, time::Duration};

use firstlight_proto::{
    clock::{Clock, Stamp},
    inject::{Injections, Segment},
};
use tokio::sync::{Semaphore, mpsc};
use tokio_util::sync::CancellationToken;

use super::{
    fingerprint::fingerprints,
    hang_up::HangUps,
    live::Live,
    pacer::{Due, pace},
};
use crate::target::{Ask, Record, Target};

/// A run to send.
#[derive(Clone, Debug)]
pub struct Plan {
    /// When each request is due.
    pub due: Due,
    /// What each request asks.
    pub asks: Vec<Ask>,
    /// Closed loop: most requests in flight; the wait for a slot is kept apart from TTFT.
    pub max_concurrency: Option<usize>,
    /// Clients that do not wait for the end.
    pub hang_ups: Option<HangUps>,
    /// Request ids are this, a dash and the index.
    pub id_prefix: String,
    /// Which repeat this is.
    pub run: usize,
}

/// What a run needs besides its plan.
#[derive(Clone, Debug)]
pub struct Bench {
    /// The server.
    pub target: Arc<Target>,
    /// Our clock.
    pub clock: Clock,
    /// Delays injected on purpose (`client_lag`).
    pub injections: Injections,
    /// Counters for the live line.
    pub live: Arc<Live>,
    /// Ends the run early: what is in flight is recorded as interrupted.
    pub stop: CancellationToken,
}

/// Sends `plan` and returns the records of all requests that were fired, in order of index.
pub async fn drive(bench: &Bench, plan: Plan) -> Vec<Record> {
    let (done, mut records) = mpsc::unbounded_channel();
    let slots = plan.max_concurrency.map(|n| Arc::new(Semaphore::new(n.max(1))));
    let runtime = tokio::runtime::Handle::current();
    let task = bench.clone();
    let pacer = tokio::task::spawn_blocking(move || {
        let fingerprints = fingerprints(&plan.due, &plan.asks);
        let mut asks = plan.asks.into_iter();
        let start = task.clock.now();
        let fire = |index: usize, intended: Stamp| {
            let Some(ask) = asks.next() else { return };
            let id = format!("{}-{index}", plan.id_prefix);
            let fingerprint = fingerprints[index];
            let record = Record { fingerprint, ..Record::new(id, plan.run, index, intended) };
            let patience = plan.hang_ups.and_then(|hang_ups| hang_ups.patience(plan.run, index));
            task.live.fired();
            runtime.spawn(send(task.clone(), slots.clone(), ask, patience, record, done.clone()));
        };
        pace(task.clock, start, &plan.due, &task.stop, fire)
    });
    let mut gathered = Vec::new();
    while let Some(record) = records.recv().await {
        gathered.push(record);
    }
    if let Err(error) = pacer.await {
        tracing::error!(%error, "the pacer failed");
    }
    gathered.sort_by_key(|r: &Record| r.index);
    gathered
}

async fn send(
    bench: Bench,
    slots: Option<Arc<Semaphore>>,
    ask: Ask,
    patience: Option<Duration>,
    mut record: Record,
    done: mpsc::UnboundedSender<Record>,
) {
    let exchange = async {
        let _slot = match slots {
            Some(slots) => {
                let slot = slots.acquire_owned().await.ok();
                let now = bench.clock.now();
                record.cap_wait_ns = Some(now.since(record.submit_start));
                record.submit_start = now;
                slot
            }
            None => None,
        };
        bench.injections.wait(Segment::ClientLag).await;
        let answered = bench.target.generate(ask, &mut record, |record| bench.live.message(record));
        match patience {
            None => answered.await,
            Some(patience) => {
                if tokio::time::timeout(patience, answered).await.is_err() {
                    record.hang_up(bench.clock.now());
                }
            }
        }
    };
    if bench.stop.run_until_cancelled(exchange).await.is_none() {
        record.ended = Some(bench.clock.now());
    }
    bench.live.ended(&record);
    // The gatherer waits for every sender, so it is there.
    let _ = done.send(record);
}
