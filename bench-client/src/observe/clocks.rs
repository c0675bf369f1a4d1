//! Clock probes of the scheduler and of every engine that this client can reach, and the map between
//! the three kinds of clock that comes of them.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use anyhow::Context as _;
use firstlight_proto::{
    clock::{Clock, Stamp},
    offset::{Offset, OffsetEstimator, Probe},
    v1::{ClockDomain, ClockOffset, ProbeClockRequest, telemetry_client::TelemetryClient},
};
use tokio_util::sync::CancellationToken;
use tonic::transport::Channel;

/// Observations are kept for longer than any run.
const WINDOW: Duration = Duration::from_secs(24 * 3600);
const PROBES_AT_ONCE: usize = 16;
const BETWEEN_PROBES: Duration = Duration::from_millis(200);

/// What is known of every clock, seen from this client.
#[derive(Clone, Debug)]
pub struct ClockMap {
    ours: ClockDomain,
    scheduler: OffsetEstimator,
    engines: BTreeMap<String, OffsetEstimator>,
}

impl ClockMap {
    /// Nothing known yet, except where our own stamps are valid.
    pub fn new(ours: ClockDomain) -> Self {
        Self { ours, scheduler: OffsetEstimator::new(WINDOW), engines: BTreeMap::new() }
    }

    /// What is known of the scheduler's clock.
    pub fn scheduler(&self) -> &OffsetEstimator {
        &self.scheduler
    }

    /// What this client itself measured of the engines' clocks, by name.
    pub fn engines(&self) -> &BTreeMap<String, OffsetEstimator> {
        &self.engines
    }

    /// Takes in a probe of the scheduler (`engine` = `None`) or of an engine.
    pub fn learn(&mut self, engine: Option<&str>, domain: Option<&ClockDomain>, probe: Probe) {
        let estimator = match engine {
            None => &mut self.scheduler,
            Some(name) => self.engines.entry(name.to_owned()).or_insert_with(|| OffsetEstimator::new(WINDOW)),
        };
        if let Some(theirs) = domain {
            estimator.set_domains(&self.ours, theirs);
        }
        estimator.probe(probe);
    }

    /// Takes in that a message left us at `sent` and reached the scheduler at `received`, and that
    /// another left it at `answered` and reached us at `arrived`: nothing arrives before it is sent.
    pub fn tighten_scheduler(&mut self, there: (Stamp, Stamp), back: (Stamp, Stamp)) {
        self.scheduler.sent(there.0, there.1);
        self.scheduler.received(back.0, back.1);
    }

    /// The engine's clock seen from the scheduler, when the scheduler's reads `at`: of what the
    /// scheduler reported and of the difference of our own two measurements, the surer one.
    pub fn engine_from_scheduler(
        &self,
        engine: &str,
        reported: Option<&ClockOffset>,
        at: Stamp,
    ) -> Option<Offset> {
        let reported = reported.map(Offset::from_wire);
        [reported, self.measured(engine, at)].into_iter().flatten().min_by_key(|o| o.bound_ns)
    }

    /// `engine - scheduler` as this client measured it, when the scheduler's clock reads `at`.
    pub fn measured(&self, engine: &str, at: Stamp) -> Option<Offset> {
        let ours = self.scheduler.to_ours(at)?.stamp;
        let scheduler = self.scheduler.estimate(ours)?;
        let engine = self.engines.get(engine)?.estimate(ours)?;
        Some(Offset {
            offset_ns: engine.offset_ns - scheduler.offset_ns,
            bound_ns: engine.bound_ns + scheduler.bound_ns,
        })
    }
}

/// A process to probe.
#[derive(Clone, Debug)]
pub struct Peer {
    /// Its connection, used for nothing else.
    pub channel: Channel,
    /// Name of the engine; `None` = the scheduler.
    pub engine: Option<String>,
}

/// Probes all its peers; the clones share one map.
#[derive(Clone, Debug)]
pub struct Prober {
    clock: Clock,
    peers: Vec<Peer>,
    map: Arc<Mutex<ClockMap>>,
}

impl Prober {
    /// A prober of these peers, with `clock`, whose stamps are valid in `ours`.
    pub fn new(clock: Clock, ours: ClockDomain, peers: Vec<Peer>) -> Self {
        Self { clock, peers, map: Arc::new(Mutex::new(ClockMap::new(ours))) }
    }

    /// A burst of probes of every peer, before and after a run.
    ///
    /// # Errors
    /// Names the peer that does not answer.
    pub async fn burst(&self) -> anyhow::Result<()> {
        for peer in &self.peers {
            for _ in 0..PROBES_AT_ONCE {
                self.probe(peer).await?;
            }
        }
        Ok(())
    }

    /// One probe of every peer now and then, until `stop`; a peer that does not answer is skipped.
    pub async fn keep_probing(self, stop: CancellationToken) {
        let mut tick = tokio::time::interval(BETWEEN_PROBES);
        while stop.run_until_cancelled(tick.tick()).await.is_some() {
            for peer in &self.peers {
                let asked = tokio::time::timeout(Duration::from_secs(1), self.probe(peer));
                if let Ok(Err(error)) = asked.await {
                    tracing::debug!(%error, "clock probe lost");
                }
            }
        }
    }

    /// What is known now.
    pub fn map(&self) -> ClockMap {
        self.map.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    async fn probe(&self, peer: &Peer) -> anyhow::Result<()> {
        let engine = peer.engine.as_deref();
        let mut client = TelemetryClient::new(peer.channel.clone());
        let t1_ns = self.clock.now().ns();
        let answer = client.probe_clock(ProbeClockRequest { t1_ns }).await;
        let t4 = self.clock.now();
        let answer = answer
            .with_context(|| format!("clock probe of {}", engine.unwrap_or("the scheduler")))?
            .into_inner();
        if let Some(probe) = Probe::from_response(&answer, t4) {
            let mut map = self.map.lock().unwrap_or_else(PoisonError::into_inner);
            map.learn(engine, answer.domain.as_ref(), probe);
        }
        Ok(())
    }
}

/// Where stamps of this process's `clock` are valid.
///
/// # Errors
/// When /proc cannot be read.
pub fn own_domain(clock: &Clock) -> anyhow::Result<ClockDomain> {
    ClockDomain::of(clock).context("reading this process's clock domain")
}
