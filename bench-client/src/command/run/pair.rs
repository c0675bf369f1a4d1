//! A run against scheduler-svc: leases the budget, probes the clocks, watches the spans.

use std::{process::ExitCode, sync::Arc, time::Duration};

use anyhow::{Context as _, bail};
use firstlight_proto::{
    clock::{Clock, Drift},
    v1::{GetModelRequest, GetModelResponse, inference_client::InferenceClient},
};
use tokio_util::sync::CancellationToken;
use tonic::{
    metadata::{Ascii, MetadataKey, MetadataValue},
    transport::Channel,
};

use super::{budget, output, passes::Passes, unique_label, workload::Workload};
use crate::{
    audit::{
        ledgers::{self, Scraped},
        watch::AuditWatch,
    },
    flags::run::RunFlags,
    join,
    observe::{
        SpanStore,
        clocks::{Peer, Prober, own_domain},
        watch::{Route, Watch, routes},
    },
    report::{
        Facts, Results, clock_info::clock_info, costs, costs::Costs, results::RunInfo, summarize,
        validity::Fitness,
    },
    target::{
        Firstlight, Record, Target,
        firstlight::{Common, connect},
    },
};

/// Time given to spans that are still on their way when the last stream has ended.
const SPAN_PATIENCE: Duration = Duration::from_secs(2);

pub async fn run(flags: &RunFlags, stop: &CancellationToken) -> anyhow::Result<ExitCode> {
    let (records, results) = results(flags, stop).await?;
    Ok(output::verdict(flags, &records, &results))
}

/// Runs the load and writes what the flags ask for; what came of it.
pub async fn results(flags: &RunFlags, stop: &CancellationToken) -> anyhow::Result<(Vec<Record>, Results)> {
    let clock = Clock::with_drift(flags.clock_drift);
    let scheduler = connect(&flags.server.target).await?;
    let model = model(scheduler.clone()).await?;
    let workload = Workload::of(flags, model.vocab_size, model.has_tokenizer)?;
    let label = unique_label(&flags.output.run_label);
    let passes = Passes { flags, workload: &workload, clock, label, stop };
    let own_lag = passes.self_check().await?;
    let routes = routes(&model.engines, &flags.server.engine).await;
    let prober = prober(flags, clock, scheduler.clone(), &routes)?;
    prober.burst().await?;

    let held = budget::hold(flags).await?;
    let in_force = held.in_force();
    let measured = measure(&passes, &routes, scheduler, &prober).await;
    let budget = held.end().await;
    let Measured { records, spans, fitness, scraped } = measured?;
    prober.burst().await.unwrap_or_else(|error| tracing::warn!(%error, "no clock probes after the run"));

    let clocks = prober.map();
    let joined = join::join(&records, &spans, &clocks);
    let facts = Facts {
        run: RunInfo { budget, interrupted: stop.is_cancelled(), ..run_info(flags, &model, &workload) },
        clock: clock_info(&clocks, &records, clock.now()),
        dropped_spans: spans.dropped(),
        fitness: fitness.with_own_lag(own_lag.as_ref()),
        slo: flags.output.slo,
        server: None,
        audit: scraped.map(|scraped| ledgers::audit(&joined, &scraped)),
    };
    let results = summarize(&joined, facts);
    output::write(flags, &joined, &results)?;
    if let Some(path) = &flags.output.forwards_out {
        costs::write(path, &Costs::of(&model.engines, in_force, &joined, spans.forwards()))?;
    }
    Ok((records, results))
}

/// What the load brought in.
struct Measured {
    records: Vec<Record>,
    spans: SpanStore,
    fitness: Fitness,
    scraped: Option<Scraped>,
}

async fn measure(
    passes: &Passes<'_>,
    routes: &[Route],
    scheduler: Channel,
    prober: &Prober,
) -> anyhow::Result<Measured> {
    let (flags, label) = (passes.flags, &passes.label);
    let common = common(flags, label)?;
    let server = Firstlight::connect(&flags.server.target, flags.load.channels, passes.clock, common).await?;
    let warm = Arc::new(Target::Firstlight(server.relabelled(format!("{label}-warm"))));
    passes.warm_up(&warm).await;

    let watch = Watch::open(scheduler, routes, label, flags.output.forwards_out.is_some())
        .await
        .context("watching the services' spans")?;
    let audit = match flags.audit.listeners() {
        Some(listeners) => Some(AuditWatch::start(passes.clock, listeners).await?),
        None => None,
    };
    let probing = CancellationToken::new();
    let prober = tokio::spawn(prober.clone().keep_probing(probing.clone()));
    let (records, fitness) = passes.measure(&Arc::new(Target::Firstlight(server))).await;
    probing.cancel();
    if let Err(error) = prober.await {
        tracing::error!(%error, "the clock prober failed");
    }
    let sent = records.iter().filter(|r| r.sent.is_some()).count();
    let mut spans = watch.collect(sent, SPAN_PATIENCE).await;
    spans.forget(flags.drop_spans, flags.load.load_seed);
    let scraped = match audit {
        Some(audit) => Some(audit.finish().await?),
        None => None,
    };
    Ok(Measured { records, spans, fitness, scraped })
}

async fn model(scheduler: Channel) -> anyhow::Result<GetModelResponse> {
    let answer = InferenceClient::new(scheduler).get_model(GetModelRequest {}).await;
    Ok(answer.context("asking the scheduler for its model")?.into_inner())
}

fn prober(flags: &RunFlags, clock: Clock, scheduler: Channel, routes: &[Route]) -> anyhow::Result<Prober> {
    let engines = routes.iter().filter_map(|r| Some((r.direct.clone()?, r.info.name.clone())));
    let mut peers = vec![Peer { channel: scheduler, engine: None }];
    peers.extend(engines.map(|(channel, name)| Peer { channel, engine: Some(name) }));
    Ok(Prober::new(clock, own_domain(flags.clock_drift != Drift::default())?, peers))
}

fn common(flags: &RunFlags, run_label: &str) -> anyhow::Result<Common> {
    let metadata = flags.load.metadata.iter().map(|pair| metadata(pair)).collect::<anyhow::Result<_>>()?;
    Ok(Common {
        model: flags.http.model.clone().unwrap_or_default(),
        sampling: flags.sampling.sampling(),
        stop: flags.sampling.stop(),
        run_label: run_label.to_owned(),
        no_prefix_cache: flags.load.no_prefix_cache,
        timeout: flags.load.timeout_ms.map(Duration::from_millis),
        metadata,
    })
}

fn metadata(pair: &str) -> anyhow::Result<(MetadataKey<Ascii>, MetadataValue<Ascii>)> {
    let Some((key, value)) = pair.split_once('=') else {
        bail!("--metadata {pair:?} is not KEY=VALUE");
    };
    let key = key.to_ascii_lowercase().parse().with_context(|| format!("--metadata {pair:?}: the key"))?;
    Ok((key, value.parse().with_context(|| format!("--metadata {pair:?}: the value"))?))
}

fn run_info(flags: &RunFlags, model: &GetModelResponse, workload: &Workload) -> RunInfo {
    let first = model.engines.first();
    RunInfo {
        label: flags.output.run_label.clone(),
        target: flags.server.target.clone(),
        api: "firstlight".to_owned(),
        model: model.name.clone(),
        device: first.map(|e| e.backend.clone()).unwrap_or_default(),
        dtype: first.map(|e| e.dtype.clone()).unwrap_or_default(),
        threads: first.map_or(0, |e| e.threads),
        engines: model.engines.len(),
        load: workload.words.clone(),
        client_version: env!("CARGO_PKG_VERSION").to_owned(),
        ..RunInfo::default()
    }
}
