//! What is known while the run goes on: counters and the TTFTs so far.

use std::sync::{
    Mutex, PoisonError,
    atomic::{AtomicU64, Ordering::Relaxed},
};

use hdrhistogram::Histogram;
use tokio_util::sync::CancellationToken;

use crate::{
    report::{slo::Slo, stats::histogram_us},
    target::Record,
};

/// Shared by the requests of a run and the line that shows it.
#[derive(Debug)]
pub struct Live {
    fired: AtomicU64,
    done: AtomicU64,
    failed: AtomicU64,
    tokens: AtomicU64,
    missed: AtomicU64,
    patience: Option<Patience>,
    ttft_us: Mutex<Histogram<u64>>,
}

/// When a run is given up.
#[derive(Clone, Debug)]
pub struct Patience {
    /// Requests that may miss the objectives or fail.
    pub most_missed: u64,
    /// Of how many.
    pub of: usize,
    /// The objectives; without any, only failures count.
    pub slo: Option<Slo>,
    /// Ends the run.
    pub stop: CancellationToken,
}

/// One look at a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Glance {
    /// Requests fired.
    pub fired: u64,
    /// Requests that ended, with the failed ones.
    pub done: u64,
    /// Requests that failed.
    pub failed: u64,
    /// Tokens received.
    pub tokens: u64,
    /// TTFT p50 and p99 so far, ms.
    pub ttft_ms: Option<(f64, f64)>,
}

impl Default for Live {
    fn default() -> Self {
        Self::new(None)
    }
}

impl Live {
    /// Counters of a run that is given up when `patience` ends.
    pub fn new(patience: Option<Patience>) -> Self {
        Self {
            fired: AtomicU64::new(0),
            done: AtomicU64::new(0),
            failed: AtomicU64::new(0),
            tokens: AtomicU64::new(0),
            missed: AtomicU64::new(0),
            patience,
            ttft_us: Mutex::new(histogram_us(2)),
        }
    }

    /// A request was fired.
    pub fn fired(&self) {
        self.fired.fetch_add(1, Relaxed);
    }

    /// A message with tokens arrived for `record`.
    pub fn message(&self, record: &Record) {
        let Some(last) = record.arrivals.last() else { return };
        self.tokens.fetch_add(u64::from(last.tokens), Relaxed);
        if let ([_], Some(ttft)) = (record.arrivals.as_slice(), record.ttft_ns()) {
            let us = u64::try_from(ttft / 1000).unwrap_or(0);
            self.ttft_us.lock().unwrap_or_else(PoisonError::into_inner).saturating_record(us);
        }
    }

    /// A request ended.
    pub fn ended(&self, record: &Record) {
        self.done.fetch_add(1, Relaxed);
        if !record.completed() {
            self.failed.fetch_add(1, Relaxed);
        }
        let Some(patience) = &self.patience else { return };
        if !patience.slo.map_or(record.completed(), |slo| slo.met(record))
            && self.missed.fetch_add(1, Relaxed) + 1 > patience.most_missed
        {
            patience.stop.cancel();
        }
    }

    /// Why the run was given up; `None` when it was not.
    pub fn given_up(&self) -> Option<String> {
        let patience = self.patience.as_ref()?;
        let missed = || patience.most_missed + 1;
        let what = if patience.slo.is_some() { "missed the objectives" } else { "failed" };
        (self.missed.load(Relaxed) > patience.most_missed)
            .then(|| format!("given up when {} of {} requests had {what}", missed(), patience.of))
    }

    /// How it stands.
    pub fn glance(&self) -> Glance {
        let ttft = self.ttft_us.lock().unwrap_or_else(PoisonError::into_inner);
        let ms = |q| ttft.value_at_quantile(q) as f64 / 1e3;
        Glance {
            fired: self.fired.load(Relaxed),
            done: self.done.load(Relaxed),
            failed: self.failed.load(Relaxed),
            tokens: self.tokens.load(Relaxed),
            ttft_ms: (!ttft.is_empty()).then(|| (ms(0.5), ms(0.99))),
        }
    }
}
