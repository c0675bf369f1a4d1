//! A run against scheduler-svc: leases the budget, probes the clocks, watches the spans.

use std::{sync::Arc, time::Duration};

use anyhow::{Context as _, bail};
use firstlight_proto::{
    clock::Clock,
    inject::loss::Share,
    v1::{
        GetModelRequest, GetModelResponse, SpanEvent, WatchSpansRequest, inference_client::InferenceClient,
    },
};
use tokio_util::sync::CancellationToken;
use tonic::{
    metadata::{Ascii, MetadataKey, MetadataValue},
    transport::Channel,
};

use super::{
    budget,
    passes::{Passes, Sent},
    unique_label,
    workload::Workload,
};
use crate::{
    audit::{
        ledgers::{self, Scraped},
        watch::AuditWatch,
    },
    flags::run::RunFlags,
    join::{self, Joined},
    observe::{
        SpanStore,
        clocks::{Peer, Prober, own_domain},
        watch::{Route, Watch, routes},
    },
    report::{Facts, Results, clock_info::clock_info, costs, costs::Costs, results::RunInfo, summarize},
    target::{
        Firstlight, Record, Target,
        firstlight::{Common, connect_over},
    },
};

/// Time given to spans that are still on their way when the last stream has ended.
const SPAN_PATIENCE: Duration = Duration::from_secs(2);

pub async fn run<T>(
    flags: &RunFlags,
    stop: &CancellationToken,
    then: impl FnOnce(&[Joined<'_>], &Results) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let clock = Clock::with_drift(flags.clock_drift);
    let tls = flags.server.tls.dialer().context("TLS")?;
    let scheduler = connect_over(&flags.server.target, tls.clone()).await?;
    let model = model(scheduler.clone()).await?;
    let workload = Workload::of(flags, model.vocab_size, model.has_tokenizer)?;
    let label = unique_label(&flags.output.run_label);
    let passes = Passes { flags, workload: &workload, clock, label, stop };
    let own_lag = passes.self_check().await?;
    let routes = routes(&model.engines, &flags.server.engine, tls.as_ref()).await;
    let prober = prober(clock, scheduler.clone(), &routes)?;
    prober.burst().await?;

    let held = budget::hold(flags).await?;
    let in_force = held.in_force();
    let measured = measure(&passes, &routes, scheduler, &prober).await;
    let budget = held.end().await;
    let Measured { sent: Sent { records, fitness, given_up }, spans, scraped } = measured?;
    prober.burst().await.unwrap_or_else(|error| tracing::warn!(%error, "no clock probes after the run"));

    let clocks = prober.map();
    let joined = join::join(&records, &spans, &clocks);
    let facts = Facts {
        run: RunInfo {
            budget,
            interrupted: stop.is_cancelled(),
            given_up,
            ..run_info(flags, &model, &workload)
        },
        clock: clock_info(&clocks, &records, clock.now()),
        dropped_spans: spans.dropped(),
        fitness: fitness.with_own_lag(own_lag.as_ref()),
        slo: flags.output.slo,
        server: None,
        audit: scraped.map(|scraped| ledgers::audit(&joined, &scraped)),
    };
    let results = summarize(&joined, facts);
    if let Some(path) = &flags.output.forwards_out {
        costs::write(path, &Costs::of(&model.engines, in_force, &joined, spans.forwards()))?;
    }
    then(&joined, &results)
}

/// What the load brought in.
struct Measured {
    sent: Sent,
    spans: SpanStore,
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
    let tls = flags.server.tls.dialer().context("TLS")?;
    let (target, channels) = (&flags.server.target, flags.load.channels);
    let server = Firstlight::connect_over(target, tls, channels, passes.clock, common).await?;
    let warm = Arc::new(Target::Firstlight(server.relabelled(format!("{label}-warm"))));
    passes.warm_up(&warm).await;

    let forwards = flags.output.forwards_out.is_some();
    let watch = match flags.no_telemetry {
        true => None,
        false => {
            // The last span of a request says what the earlier did.
            let events = vec![SpanEvent::Finished.into()];
            let request =
                WatchSpansRequest { run_label: label.to_owned(), forwards, events, ..Default::default() };
            let watch = Watch::open(scheduler, routes, request).await;
            Some(watch.context("watching the services' spans")?)
        }
    };
    let audit = match flags.audit.listeners() {
        Some(listeners) => Some(AuditWatch::start(passes.clock, listeners).await?),
        None => None,
    };
    let probing = CancellationToken::new();
    let prober = tokio::spawn(prober.clone().keep_probing(probing.clone()));
    let mut sent = passes.measure(&Arc::new(Target::Firstlight(server))).await;
    probing.cancel();
    if let Err(error) = prober.await {
        tracing::error!(%error, "the clock prober failed");
    }
    let expected = sent.records.iter().filter(|r| r.sent.is_some()).count();
    let mut spans = match watch {
        Some(watch) => watch.collect(expected, SPAN_PATIENCE).await,
        None => SpanStore::default(),
    };
    spans.forget(flags.drop_spans);
    forget_cancelled(&mut sent.records, flags.forget_cancelled);
    let scraped = match audit {
        Some(audit) => Some(audit.finish().await?),
        None => None,
    };
    Ok(Measured { sent, spans, scraped })
}

/// A client that loses count of requests it hung up on; the audit has to notice.
fn forget_cancelled(records: &mut Vec<Record>, mut count: usize) {
    records.retain(|record| {
        let forgotten = count > 0 && record.is_cancelled() && record.submit_end.is_some();
        count -= usize::from(forgotten);
        !forgotten
    });
}

async fn model(scheduler: Channel) -> anyhow::Result<GetModelResponse> {
    let answer = InferenceClient::new(scheduler).get_model(GetModelRequest {}).await;
    Ok(answer.context("asking the scheduler for its model")?.into_inner())
}

fn prober(clock: Clock, scheduler: Channel, routes: &[Route]) -> anyhow::Result<Prober> {
    let engines = routes.iter().filter_map(|r| Some((r.direct.clone()?, r.info.name.clone())));
    let mut peers = vec![Peer { channel: scheduler, engine: None }];
    peers.extend(engines.map(|(channel, name)| Peer { channel, engine: Some(name) }));
    Ok(Prober::new(clock, own_domain(&clock)?, peers))
}

fn common(flags: &RunFlags, run_label: &str) -> anyhow::Result<Common> {
    let metadata = flags.load.metadata.iter().map(|pair| metadata(pair)).collect::<anyhow::Result<_>>()?;
    Ok(Common {
        model: flags.http.model.clone().unwrap_or_default(),
        sampling: flags.sampling.sampling(),
        stop: flags.sampling.stop(),
        run_label: run_label.to_owned(),
        no_prefix_cache: flags.load.no_prefix_cache,
        omit_timelines: if flags.no_telemetry { Share::ALL } else { flags.omit_timelines },
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
    RunInfo {
        label: flags.output.run_label.clone(),
        load: workload.words.clone(),
        load_seed: flags.load.load_seed,
        ..RunInfo::of_pair(&flags.server.target, model)
    }
}
