//! Streams of spans: from the scheduler, which relays its engines', and from each engine directly when its
//! address can be reached from here and the one that answers is the one meant. A stream that breaks is opened
//! again; what was lost meanwhile the relay brings.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use firstlight_proto::{
    serve::{spans::GATHER, tls::Dialer},
    v1::{EngineInfo, ProbeClockRequest, SpanEvent, WatchSpansRequest, telemetry_client::TelemetryClient},
};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tonic::{Status, transport::Channel};

use super::SpanStore;
use crate::target::firstlight::connect_over;

/// Spans the services hold back for us while we are busy.
const BUFFER: u32 = 1 << 20;
/// Time before a broken stream is opened again.
const REOPEN_AFTER: Duration = Duration::from_millis(50);
/// Time between looks at what has arrived, at the end.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// An engine and the way to its spans.
#[derive(Clone, Debug)]
pub struct Route {
    /// What the scheduler says of the engine.
    pub info: EngineInfo,
    /// The connection to it, when it can be reached from here.
    pub direct: Option<Channel>,
}

/// Tries the address of each engine, then those in `seen_from_here`. An address may lead to another
/// engine from here (every pod has its own 127.0.0.1), so the answer must carry the engine's name.
pub async fn routes(engines: &[EngineInfo], seen_from_here: &[String], tls: Option<&Dialer>) -> Vec<Route> {
    let mut routes = Vec::with_capacity(engines.len());
    for info in engines {
        let mut route = Route { info: info.clone(), direct: None };
        for address in std::iter::once(&info.address).chain(seen_from_here) {
            let tried = tokio::time::timeout(Duration::from_secs(2), reach(info, address, tls)).await;
            route.direct = tried.ok().flatten();
            if route.direct.is_some() {
                break;
            }
        }
        routes.push(route);
    }
    routes
}

async fn reach(info: &EngineInfo, address: &str, tls: Option<&Dialer>) -> Option<Channel> {
    let channel = connect_over(address, tls.cloned()).await.ok()?;
    let answer =
        TelemetryClient::new(channel.clone()).probe_clock(ProbeClockRequest::default()).await.ok()?;
    (answer.into_inner().name == info.name).then_some(channel)
}

/// The spans of one run, as they arrive.
#[derive(Debug)]
pub struct Watch {
    store: Arc<Mutex<SpanStore>>,
    /// Names of the engines that tell us themselves.
    direct: Vec<String>,
    streams: JoinSet<()>,
    stop: CancellationToken,
}

impl Watch {
    /// Opens all streams: the scheduler is asked for what `request` says, and for its engines' spans; engines that can
    /// be reached for theirs of the same requests. Returns when the services have accepted them.
    ///
    /// # Errors
    /// When a service refuses.
    pub async fn open(
        scheduler: Channel,
        routes: &[Route],
        request: WatchSpansRequest,
    ) -> Result<Self, Status> {
        let mut watch = Self {
            store: Arc::new(Mutex::new(SpanStore::default())),
            direct: routes.iter().filter(|r| r.direct.is_some()).map(|r| r.info.name.clone()).collect(),
            streams: JoinSet::new(),
            stop: CancellationToken::new(),
        };
        let request = WatchSpansRequest { buffer: BUFFER, ..request };
        // An engine that dies says no last word, so its first counts; and what it had not sent yet is relayed.
        let of_engine = WatchSpansRequest { events: vec![SpanEvent::FirstToken.into()], ..request.clone() };
        watch.follow(scheduler, WatchSpansRequest { relay_engines: true, ..request }).await?;
        for channel in routes.iter().filter_map(|r| r.direct.clone()) {
            watch.follow(channel, of_engine.clone()).await?;
        }
        Ok(watch)
    }

    /// Waits until the ends of `requests` requests were heard, at most `patience`, and returns all spans.
    pub async fn collect(self, requests: usize, patience: Duration) -> SpanStore {
        let heard = async {
            while self.look(SpanStore::finished) < requests {
                tokio::time::sleep(LOOK_EVERY).await;
            }
            // Engine spans travel on streams of their own and may be a moment behind.
            let behind = async {
                while !self.look(|store| store.told_by(&self.direct)) {
                    tokio::time::sleep(LOOK_EVERY).await;
                }
            };
            let _ = tokio::time::timeout(2 * GATHER, behind).await;
        };
        let _ = tokio::time::timeout(patience, heard).await;
        self.close().await
    }

    /// Looks at what was heard so far.
    pub fn look<T>(&self, at: impl FnOnce(&SpanStore) -> T) -> T {
        at(&lock(&self.store))
    }

    /// Hangs up and returns all spans.
    pub async fn close(mut self) -> SpanStore {
        self.stop.cancel();
        while self.streams.join_next().await.is_some() {}
        std::mem::take(&mut *lock(&self.store))
    }

    async fn follow(&mut self, channel: Channel, request: WatchSpansRequest) -> Result<(), Status> {
        let mut client = TelemetryClient::new(channel).max_decoding_message_size(64 << 20);
        let mut stream = client.watch_spans(request.clone()).await?.into_inner();
        let (store, stop) = (Arc::clone(&self.store), self.stop.clone());
        let follow = async move {
            loop {
                while let Ok(Some(batch)) = stream.message().await {
                    lock(&store).add(batch);
                }
                stream = loop {
                    tokio::time::sleep(REOPEN_AFTER).await;
                    if let Ok(reopened) = client.watch_spans(request.clone()).await {
                        break reopened.into_inner();
                    }
                };
            }
        };
        self.streams.spawn(async move {
            stop.run_until_cancelled(follow).await;
        });
        Ok(())
    }
}

fn lock(store: &Mutex<SpanStore>) -> MutexGuard<'_, SpanStore> {
    store.lock().unwrap_or_else(PoisonError::into_inner)
}
