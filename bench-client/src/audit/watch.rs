//! Scrapes before, during and after the load.

use std::time::Duration;

use firstlight_proto::clock::Clock;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::{gauges::Gauge, ledgers::Scraped};
use crate::observe::prometheus::{Scrape, Scraper};

const BETWEEN_SAMPLES: Duration = Duration::from_millis(20);
/// Counters of ended requests settle within this.
const SETTLE: Duration = Duration::from_millis(300);

/// The metrics listeners of the services.
#[derive(Clone, Debug)]
pub struct Listeners {
    /// The scheduler's, `host:port`.
    pub scheduler: String,
    /// The engines'.
    pub engines: Vec<String>,
}

/// An audit under way.
#[derive(Debug)]
pub struct AuditWatch {
    scraper: Scraper,
    listeners: Listeners,
    before: (Scrape, Vec<Scrape>),
    sampler: JoinHandle<Gauge>,
    stop: CancellationToken,
}

impl AuditWatch {
    /// Scrapes all services once they are idle and starts sampling the scheduler's gauges.
    ///
    /// # Errors
    /// Names the listener that does not answer.
    pub async fn start(clock: Clock, listeners: Listeners) -> anyhow::Result<Self> {
        tokio::time::sleep(SETTLE).await;
        let scraper = Scraper::default();
        let before = all(&scraper, &listeners).await?;
        let stop = CancellationToken::new();
        let sampler = sample(clock, scraper.clone(), listeners.scheduler.clone(), stop.clone());
        Ok(Self { scraper, listeners, before, sampler: tokio::spawn(sampler), stop })
    }

    /// Scrapes all services again.
    ///
    /// # Errors
    /// Names the listener that does not answer.
    pub async fn finish(self) -> anyhow::Result<Scraped> {
        tokio::time::sleep(SETTLE).await;
        self.stop.cancel();
        let in_system = self.sampler.await?;
        let (scheduler, engines) = all(&self.scraper, &self.listeners).await?;
        Ok(Scraped {
            scheduler: (self.before.0, scheduler),
            engines: self.before.1.into_iter().zip(engines).collect(),
            in_system,
        })
    }
}

async fn all(scraper: &Scraper, listeners: &Listeners) -> anyhow::Result<(Scrape, Vec<Scrape>)> {
    let mut engines = Vec::with_capacity(listeners.engines.len());
    for addr in &listeners.engines {
        engines.push(scraper.scrape(addr).await?);
    }
    Ok((scraper.scrape(&listeners.scheduler).await?, engines))
}

async fn sample(clock: Clock, scraper: Scraper, scheduler: String, stop: CancellationToken) -> Gauge {
    let mut gauge = Gauge::default();
    let mut tick = tokio::time::interval(BETWEEN_SAMPLES);
    while stop.run_until_cancelled(tick.tick()).await.is_some() {
        let asked = clock.now();
        if let Ok(scrape) = scraper.scrape(&scheduler).await {
            // The gauges were read somewhere between question and answer.
            let half = clock.now().saturating_since(asked) / 2;
            let value = scrape.sum("firstlight_pending_requests") + scrape.sum("firstlight_active_requests");
            gauge.push(asked + half, value);
        }
    }
    gauge
}
