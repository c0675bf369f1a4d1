//! One listener with every service. It is live from the start, ready once a model is loaded, and ends drained.

use std::{
    net::SocketAddr,
    sync::{Arc, OnceLock, atomic::AtomicU64},
    time::Duration,
};

use anyhow::Context as _;
use firstlight_proto::{
    clock::Clock,
    inject::{Injections, loss::Share},
    serve::{
        health::{self, HealthListen},
        listen,
        shutdown::Shutdown,
        spans::SpanHub,
        tls::Acceptor,
    },
    v1::{self, ClockDomain, engine_server::EngineServer, telemetry_server::TelemetryServer},
};
use firstlight_sim::planner::{Limits, Shape};
use tokio::{net::TcpListener, sync::oneshot, task::JoinHandle};
use tonic::{service::RoutesBuilder, transport::Server};
use tonic_health::{ServingStatus, server::HealthReporter};

use super::{
    attach::{EngineService, Loaded},
    telemetry::{Identity, TelemetryService},
    validate::Bounds,
};
use crate::{
    backend::Backend,
    metrics::{self, LiveCounts},
    step::{self, Command, LiveBlocked, StepConfig, StepError, StepHandle},
};

/// A batch of long prompts is a large message.
const MAX_MESSAGE: usize = 256 << 20;
/// A hidden wait for a stream slot is what we exist to expose; so there is none.
const MAX_STREAMS: u32 = 1 << 20;
/// How long streams may take to end once they have been told to.
const LINGER: Duration = Duration::from_secs(2);

/// How an engine serves.
#[derive(Debug, Clone)]
pub struct ServerConfig {
    /// Name of the engine; empty: hostname and port.
    pub name: String,
    /// Where to listen; port 0 takes a free one.
    pub listen: SocketAddr,
    /// TLS on that listener; `None`: in the clear.
    pub tls: Option<Acceptor>,
    /// A listener for health alone.
    pub health: HealthListen,
    /// The clock of every stamp.
    pub clock: Clock,
    /// Limits until a scheduler sets others.
    pub limits: Limits,
    /// Most sequences that have begun and not ended.
    pub max_sequences: usize,
    /// Prompt and decode rows share one forward per step.
    pub mixed: bool,
    /// Most tokens guessed ahead of each decode row; 0 = none.
    pub draft_tokens: usize,
    /// An attachment that takes nothing for this long is ended.
    pub stall_limit: Duration,
    /// Known delays, for tests of the breakdown.
    pub injections: Injections,
    /// Share of requests whose spans are lost, for tests of the breakdown.
    pub drop_spans: Share,
    /// Sequences are told of; off only to measure what telling costs.
    pub tells: bool,
}

/// An engine that listens and has no model yet: live, not ready.
pub struct Live {
    config: ServerConfig,
    addr: SocketAddr,
    identity: Identity,
    spans: Arc<SpanHub>,
    counts: LiveCounts,
    blocked: LiveBlocked,
    loaded: Arc<OnceLock<Loaded>>,
    health: HealthReporter,
    shutdown: Shutdown,
    serving: JoinHandle<Result<(), tonic::transport::Error>>,
}

/// An engine that serves a model.
pub struct Ready {
    step: StepHandle,
    loop_end: oneshot::Receiver<Result<(), StepError>>,
    live: Live,
}

impl Live {
    /// Binds the listener and answers health, reflection, probes; Attach is refused until [`Live::ready`].
    ///
    /// # Errors
    /// When the address cannot be bound.
    pub async fn listen(config: ServerConfig, shutdown: Shutdown) -> anyhow::Result<Self> {
        let listener = TcpListener::bind(config.listen)
            .await
            .with_context(|| format!("--listen {}: cannot listen", config.listen))?;
        let addr = listener.local_addr()?;
        let incoming = listen::incoming(listener, config.tls.clone());
        let identity = Identity {
            name: name_or_address(&config.name, addr)?,
            clock: config.clock,
            domain: ClockDomain::of(&config.clock).context("clock domain")?,
        };
        let spans = Arc::new(SpanHub::losing(config.drop_spans));
        let loaded = Arc::new(OnceLock::new());
        let (health, health_service) = tonic_health::server::health_reporter();
        set(&health, &[health::LIVE], &[health::READY, health::DRAINING, ""]).await;

        let engine = EngineService {
            loaded: loaded.clone(),
            identity: identity.clone(),
            injections: config.injections.clone(),
            drain: shutdown.drain.clone(),
            next_key: AtomicU64::new(1),
        };
        let telemetry = TelemetryService {
            identity: identity.clone(),
            spans: spans.clone(),
            stop: shutdown.stop.clone(),
        };
        let mut routes = RoutesBuilder::default();
        routes
            .add_service(health_service.clone())
            .add_service(EngineServer::new(engine).max_decoding_message_size(MAX_MESSAGE))
            .add_service(TelemetryServer::new(telemetry));
        health::add_reflection(&mut routes)?;
        let server = Server::builder()
            .max_concurrent_streams(Some(MAX_STREAMS))
            .http2_keepalive_interval(Some(Duration::from_secs(10)))
            .add_routes(routes.routes());
        config.health.serve(health_service, shutdown.stop.clone()).await?;
        let stop = shutdown.stop.clone();
        let serving = tokio::spawn(server.serve_with_incoming_shutdown(incoming, stop.cancelled_owned()));
        Ok(Self {
            config,
            addr,
            identity,
            spans,
            counts: LiveCounts::default(),
            blocked: LiveBlocked::default(),
            loaded,
            health,
            shutdown,
            serving,
        })
    }

    /// Brings the recorder up to date for a scrape; what `/metrics` appends to its page.
    pub fn live_metrics(&self) -> impl Fn() -> std::future::Ready<String> + Clone + Send + Sync + 'static {
        let (counts, blocked, clock) = (self.counts.clone(), self.blocked.clone(), self.identity.clock);
        move || {
            metrics::record_counts(&counts.get());
            std::future::ready(metrics::blocked_page(blocked.at(clock.now())))
        }
    }

    /// Starts the step loop on `backend`; from now on schedulers may attach.
    ///
    /// # Errors
    /// When the loop's thread cannot be started, or the backend does not run.
    pub async fn ready(self, backend: Box<dyn Backend>) -> anyhow::Result<Ready> {
        let (model, kv) = (backend.info().clone(), backend.kv());
        let shape = Shape {
            eos_ids: model.eos_ids.clone(),
            max_sequences: self.config.max_sequences,
            mixed: self.config.mixed,
            draft_tokens: self.config.draft_tokens,
        };
        let hello = v1::Hello {
            name: self.identity.name.clone(),
            model: model.name.clone(),
            tokenizer_hash: model.tokenizer_hash.clone(),
            vocab_size: model.vocab_size as u32,
            eos_ids: model.eos_ids.clone(),
            context_length: model.context_length as u32,
            block_size: kv.block_tokens as u32,
            kv_blocks: kv.blocks as u32,
            free_blocks: kv.blocks as u32,
            max_sequences: self.config.max_sequences as u32,
            limits: None,
            domain: Some(self.identity.domain.clone()),
            backend: model.backend.to_owned(),
            dtype: model.dtype.clone(),
            threads: model.threads as u32,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            mixed: self.config.mixed,
        };
        let config = StepConfig {
            clock: self.identity.clock,
            hello,
            shape,
            limits: self.config.limits,
            stall_limit: self.config.stall_limit,
            injections: self.config.injections.clone(),
            tells: self.config.tells,
            spans: self.spans.clone(),
            counts: self.counts.clone(),
            blocked: self.blocked.clone(),
        };
        let bounds = Bounds::new(&model, kv, self.config.mixed);
        let (step, loop_end) = step::start(config, backend).await?;
        // Set once: `ready` consumes the only `Live` there is.
        let _ = self.loaded.set(Loaded { step: step.clone(), bounds });
        set(&self.health, &[health::READY, ""], &[]).await;
        Ok(Ready { step, loop_end, live: self })
    }

    /// Waits until every stream has ended, for a short while.
    async fn finish(self) -> anyhow::Result<()> {
        self.shutdown.stop.cancel();
        match tokio::time::timeout(LINGER, self.serving).await {
            Ok(served) => Ok(served??),
            Err(_) => {
                tracing::warn!("streams that did not end were cut");
                Ok(())
            }
        }
    }
}

impl Ready {
    /// Where it listens.
    pub fn addr(&self) -> SocketAddr {
        self.live.addr
    }

    /// The engine's name.
    pub fn name(&self) -> &str {
        &self.live.identity.name
    }

    /// The way to the step loop.
    pub fn step(&self) -> &StepHandle {
        &self.step
    }

    /// Serves until the shutdown's stages are through, or the step loop ends by itself.
    ///
    /// # Errors
    /// When the step loop failed: the process cannot serve any more.
    pub async fn serve(self) -> anyhow::Result<()> {
        let Self { step, mut loop_end, live } = self;
        let shutdown = live.shutdown.clone();
        let ended = tokio::select! {
            ended = &mut loop_end => ended,
            () = shutdown.drain.cancelled() => {
                set(&live.health, &[health::DRAINING], &[health::READY, ""]).await;
                step.send(Command::Drain);
                tokio::select! {
                    ended = &mut loop_end => ended,
                    () = shutdown.stop.cancelled() => {
                        step.send(Command::Stop);
                        loop_end.await
                    }
                }
            }
            () = shutdown.stop.cancelled() => {
                step.send(Command::Stop);
                loop_end.await
            }
        };
        live.finish().await?;
        ended.context("the step loop vanished")?.context("the step loop failed")
    }
}

async fn set(health: &HealthReporter, serving: &[&str], not_serving: &[&str]) {
    for name in serving {
        health.set_service_status(*name, ServingStatus::Serving).await;
    }
    for name in not_serving {
        health.set_service_status(*name, ServingStatus::NotServing).await;
    }
}

fn name_or_address(name: &str, addr: SocketAddr) -> anyhow::Result<String> {
    if !name.is_empty() {
        return Ok(name.to_owned());
    }
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").context("hostname; set --name")?;
    Ok(format!("{}:{}", host.trim(), addr.port()))
}
