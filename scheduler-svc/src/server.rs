//! The service made of its parts: listeners, dispatch, links, watchdog, health.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use anyhow::Context as _;
use firstlight_proto::{
    clock::Clock,
    inject::Injections,
    serve::{health::add_reflection, listen, shutdown::Shutdown, spans::SpanHub, tls::Acceptor},
    v1::{
        ClockDomain, admin_server::AdminServer, inference_server::InferenceServer,
        telemetry_server::TelemetryServer,
    },
};
use tokio::{
    net::TcpListener,
    sync::{mpsc, watch},
    task::JoinSet,
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tonic::{service::RoutesBuilder, transport::Server};

use crate::{
    cli::{Flags, seconds},
    dispatch::{self, Budgets, Dispatch, Dispatcher},
    engines::{self, Vocabulary},
    frontend::{
        admin::{AdminService, check_loopback},
        health,
        inference::InferenceService,
        observe::TelemetryService,
        tokenize::Prompts,
    },
    metrics::{Metrics, Tenants},
    otlp,
    shadow::{Shadow, ShadowPolicy},
    telemetry::Telemetry,
    text::Tokenizer,
    watchdog,
};

/// Events of links that may wait for the dispatch task; more makes the links wait.
const EVENT_BUFFER: usize = 1024;
/// Largest request message; the prompt itself has a smaller limit, which is refused by name.
const MAX_MESSAGE: usize = 32 << 20;
/// Streams of one connection: a limit here would hide waiting from everyone's clocks.
const MAX_STREAMS: u32 = 1 << 20;
/// Streams that a client may reset before they were looked at; a burst of cancels is no attack.
const MAX_RESETS: usize = 1 << 16;

/// A running scheduler.
pub struct Running {
    /// Where clients are served.
    pub addr: SocketAddr,
    /// Where operators are served.
    pub admin_addr: SocketAddr,
    /// To the owner of the core; for metrics and tests.
    pub dispatcher: Dispatcher,
    tasks: JoinSet<anyhow::Result<()>>,
}

impl Running {
    /// Waits until it has drained or was stopped.
    ///
    /// # Errors
    /// What a listener failed with.
    pub async fn wait(&mut self) -> anyhow::Result<()> {
        while let Some(ended) = self.tasks.join_next().await {
            ended.context("a task panicked")??;
        }
        Ok(())
    }
}

/// Starts a scheduler. Draining ends it when no stream is open; stopping ends it at once.
///
/// # Errors
/// Names the flag that is wrong, the file that cannot be loaded or the address that cannot be bound.
pub async fn start(flags: Flags, shutdown: Shutdown) -> anyhow::Result<Running> {
    check_loopback(flags.admin_listen)?;
    let roster = flags.roster()?;
    let budgets = Budgets::new(&flags.budget.change()).context("budget flags")?;
    let slo_ttft = seconds("--slo-ttft", flags.slo_ttft / 1e3)?;
    let stall = seconds("--stall-seconds", flags.stall_seconds)?;
    let client_tls = flags.tls.acceptor().context("TLS for clients")?;
    let engine_tls = flags.engine_tls.dialer().context("TLS to engines")?;
    let tokenizer = load_tokenizer(&flags).await?;
    let injections = Arc::new(Injections::new(flags.inject_delay.clone()));
    let clock = Clock::with_drift(flags.clock_drift);
    let metrics = Metrics::new();
    let (traces, exporter) = match &flags.otlp_endpoint {
        Some(endpoint) => {
            let (traces, exporter) = otlp::export::to(endpoint, clock, metrics.traces.clone())?;
            (Some(traces), Some(exporter))
        }
        None => (None, None),
    };
    let telemetry = Arc::new(Telemetry {
        clock,
        domain: Arc::new(ClockDomain::of(&clock).context("this machine's boot id")?),
        metrics,
        tenants: Tenants::new(&flags.tenants),
        spans: SpanHub::losing(flags.drop_spans),
        traces,
        tells: !flags.no_telemetry,
        slo_ttft,
    });

    let listener = bind("--listen", flags.listen).await?;
    let admin_listener = bind("--admin-listen", flags.admin_listen).await?;
    let (addr, admin_addr) = (listener.local_addr()?, admin_listener.local_addr()?);

    let shadow = match &flags.shadow_policy {
        Some(path) => Some(ShadowPolicy::load(path, &budgets).context("--shadow-policy")?),
        None => None,
    };
    let (feed, shadow) = shadow.map(|policy| Shadow::fed(policy, telemetry.clock)).unzip();

    let (events, event_receiver) = mpsc::channel(EVENT_BUFFER);
    let config = dispatch::Config {
        budgets,
        model_name: flags.model_name.clone(),
        stream_buffer: flags.stream_buffer as usize,
        injections: injections.clone(),
        shadow: feed,
    };
    let (dispatch, dispatcher) =
        Dispatch::new(config, telemetry.clone(), event_receiver).map_err(dispatch::budget_wire::invalid)?;
    let vocabulary =
        tokenizer.as_ref().map(|t| Vocabulary { fingerprint: t.fingerprint().into(), size: t.vocab_size() });
    let links = engines::Context {
        clock: telemetry.clock,
        domain: telemetry.domain.clone(),
        vocabulary,
        tls: engine_tls,
        injections: injections.clone(),
        events,
    };

    let (reporter, health_service) = tonic_health::server::health_reporter();
    let (stalled, is_stalled) = watch::channel(false);
    let open = TaskTracker::new();
    let mut routes = RoutesBuilder::default();
    let inference = InferenceService {
        dispatcher: dispatcher.clone(),
        prompts: Prompts::new(tokenizer),
        telemetry: telemetry.clone(),
        injections,
        drain: shutdown.drain.clone(),
        open: open.clone(),
    };
    routes
        .add_service(InferenceServer::new(inference).max_decoding_message_size(MAX_MESSAGE))
        .add_service(TelemetryServer::new(TelemetryService { telemetry: telemetry.clone() }))
        .add_service(health_service.clone());
    add_reflection(&mut routes)?;
    let mut admin_routes = RoutesBuilder::default();
    admin_routes.add_service(AdminServer::new(AdminService { dispatcher: dispatcher.clone() }));
    add_reflection(&mut admin_routes)?;

    // Three stages: drain (no new requests), done (all streams have ended), stop (everything ends).
    let done = CancellationToken::new();
    let mut tasks = JoinSet::new();
    tasks.spawn(done_when_drained(shutdown.clone(), open, done.clone()));
    flags.health.serve(health_service, done.clone()).await?;
    tasks.spawn(serve(listener, client_tls, routes, done.clone()));
    tasks.spawn(serve(admin_listener, None, admin_routes, done.clone()));
    spawn(&mut tasks, dispatch.run(done.clone()));
    if let Some(exporter) = exporter {
        spawn(&mut tasks, exporter.run(done.clone()));
    }
    if let Some(shadow) = shadow {
        shadow.spawn().context("the shadow's thread")?;
    }
    spawn(&mut tasks, roster.run(links, done.clone()));
    spawn(&mut tasks, watchdog::run(dispatcher.clone(), telemetry, stall, stalled, done.clone()));
    spawn(&mut tasks, health::report(reporter, dispatcher.served(), is_stalled, shutdown.drain, done));
    tracing::info!(%addr, %admin_addr, "listening");
    Ok(Running { addr, admin_addr, dispatcher, tasks })
}

async fn load_tokenizer(flags: &Flags) -> anyhow::Result<Option<Arc<Tokenizer>>> {
    let Some(path) = flags.model.clone() else { return Ok(None) };
    let load = move || -> anyhow::Result<Tokenizer> {
        Ok(Tokenizer::load(&firstlight_hub::resolve(&path, firstlight_hub::Wanted::Tokenizer)?)?)
    };
    let tokenizer = tokio::task::spawn_blocking(load).await?.context("--model")?;
    tracing::info!(
        vocab_size = tokenizer.vocab_size(),
        fingerprint = tokenizer.fingerprint(),
        "tokenizer loaded"
    );
    Ok(Some(Arc::new(tokenizer)))
}

async fn bind(flag: &str, addr: SocketAddr) -> anyhow::Result<TcpListener> {
    TcpListener::bind(addr).await.with_context(|| format!("{flag} {addr}: cannot listen"))
}

async fn serve(
    listener: TcpListener,
    tls: Option<Acceptor>,
    routes: RoutesBuilder,
    done: CancellationToken,
) -> anyhow::Result<()> {
    let incoming = listen::incoming(listener, tls);
    let serving = Server::builder()
        .max_concurrent_streams(MAX_STREAMS)
        .http2_max_pending_accept_reset_streams(Some(MAX_RESETS))
        .http2_keepalive_interval(Some(Duration::from_secs(20)))
        .http2_keepalive_timeout(Some(Duration::from_secs(10)))
        .add_routes(routes.routes())
        .serve_with_incoming_shutdown(incoming, done.clone().cancelled_owned());
    // Idle connections may stay open for ever: after the last stream they get a moment to close.
    let grace = async {
        done.cancelled().await;
        tokio::time::sleep(Duration::from_millis(500)).await;
    };
    tokio::select! {
        served = serving => served.context("gRPC listener"),
        () = grace => Ok(()),
    }
}

/// Ends the service when it drains and no stream is open any more, or at once when it is to stop.
async fn done_when_drained(
    shutdown: Shutdown,
    open: TaskTracker,
    done: CancellationToken,
) -> anyhow::Result<()> {
    let drained = async {
        shutdown.drain.cancelled().await;
        open.close();
        open.wait().await;
    };
    tokio::select! {
        () = drained => {}
        () = shutdown.stop.cancelled() => {}
    }
    done.cancel();
    Ok(())
}

fn spawn(tasks: &mut JoinSet<anyhow::Result<()>>, task: impl Future<Output = ()> + Send + 'static) {
    tasks.spawn(async {
        task.await;
        Ok(())
    });
}
