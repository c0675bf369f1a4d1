//! `bench-client run`: leases the budget, makes the load, joins what three processes saw, reports.

use std::{sync::Arc, time::Duration};

use anyhow::{Context as _, bail};
use firstlight_proto::{
    clock::Clock,
    inject::Injections,
    v1::{GetModelRequest, GetModelResponse, inference_client::InferenceClient},
};
use tokio_util::sync::CancellationToken;
use tonic::{
    metadata::{Ascii, MetadataKey, MetadataValue},
    transport::Channel,
};
use uuid::Uuid;

use super::{budget, progress::Progress};
use crate::{
    flags::{load::LoadFlags, run::RunFlags},
    join::{self, Joined},
    load::{
        Arrivals,
        drive::{Bench, Plan, drive},
        live::Live,
        pacer::Due,
        prompts::Prompts,
    },
    observe::{
        SpanStore,
        clocks::{Peer, Prober, own_domain},
        watch::{Route, Watch, routes},
    },
    report::{
        Facts, Results,
        clock_info::clock_info,
        results::RunInfo,
        rows, summarize, text,
        validity::{CpuMeter, Fitness},
    },
    selfcheck,
    target::{
        Firstlight, Outcome, Prompt, Record, Target,
        firstlight::{Common, connect},
    },
};

/// Time given to spans that are still on their way when the last stream has ended.
const SPAN_PATIENCE: Duration = Duration::from_secs(2);

/// Runs the command; the exit code tells whether the run is good.
///
/// # Errors
/// When the services are not there, refuse the budget, or a result file cannot be written.
pub async fn run(flags: RunFlags) -> anyhow::Result<std::process::ExitCode> {
    let arrivals = flags.load.arrivals()?;
    let clock = Clock::with_drift(flags.clock_drift);
    let scheduler = connect(&flags.server.target).await?;
    let model = model(scheduler.clone()).await?;
    let routes = routes(&model.engines, &flags.server.engine).await;
    let prober = prober(&flags, clock, scheduler.clone(), &routes)?;
    prober.burst().await?;
    let stop = stop_on_ctrl_c();

    let held = budget::hold(&flags).await?;
    let measured = measure(&flags, &arrivals, clock, &model, &routes, scheduler, &prober, &stop).await;
    let budget = held.end().await;
    let measured = measured?;
    prober.burst().await.unwrap_or_else(|error| tracing::warn!(%error, "no clock probes after the run"));

    let clocks = prober.map();
    let joined = join::join(&measured.records, &measured.spans, &clocks);
    let facts = Facts {
        run: RunInfo { budget, interrupted: stop.is_cancelled(), ..run_info(&flags, &model) },
        clock: clock_info(&clocks, &measured.records, clock.now()),
        dropped_spans: measured.spans.dropped(),
        fitness: measured.fitness,
    };
    let results = summarize(&joined, facts);
    write(&flags, &joined, &results)?;
    Ok(verdict(&flags, &measured.records, &results))
}

/// What the load brought in.
struct Measured {
    records: Vec<Record>,
    spans: SpanStore,
    fitness: Fitness,
}

#[expect(clippy::too_many_arguments, reason = "the parts of one run, put together once")]
async fn measure(
    flags: &RunFlags,
    arrivals: &Arrivals,
    clock: Clock,
    model: &GetModelResponse,
    routes: &[Route],
    scheduler: Channel,
    prober: &Prober,
    stop: &CancellationToken,
) -> anyhow::Result<Measured> {
    let load = &flags.load;
    let id = format!("{}-{}", flags.output.run_label, short_id());
    let server = Firstlight::connect(&flags.server.target, load.channels, clock, common(flags, &id)?).await?;
    let prompts = prompts(load, model);
    let injections = Injections::new(flags.inject_delay.clone());
    let bench = |target| Bench {
        target: Arc::new(Target::Firstlight(target)),
        clock,
        injections: injections.clone(),
        live: Arc::new(Live::default()),
        stop: stop.clone(),
    };
    let mut serial = 0;
    let mut plan = |what: String, run: usize| {
        let asks = (serial..serial + load.num_requests).map(|i| prompts.ask(i)).collect();
        serial += load.num_requests;
        let due = due(arrivals, load.num_requests, load.load_seed.wrapping_add(run as u64));
        Plan { due, asks, max_concurrency: load.max_concurrency, id_prefix: format!("{id}-{what}"), run }
    };
    let shown = |title: &str, bench: &Bench| {
        let quiet = flags.output.quiet || flags.output.json;
        Progress::start(title.to_owned(), load.num_requests, Arc::clone(&bench.live), quiet)
    };

    let own_lag = match flags.no_self_check {
        true => None,
        false => Some(
            selfcheck::check(clock, &due(arrivals, load.num_requests, load.load_seed), load.channels).await?,
        ),
    };
    let warm = bench(server.relabelled(format!("{id}-warm")));
    for i in 0..load.warmup_runs {
        let _shown = shown("warm-up", &warm);
        drive(&warm, plan(format!("w{i}"), i)).await;
    }

    let watch = Watch::open(scheduler, routes, &id).await.context("watching the services' spans")?;
    let probing = CancellationToken::new();
    let prober = tokio::spawn(prober.clone().keep_probing(probing.clone()));
    let meter = CpuMeter::start(clock);
    let mut records = Vec::new();
    let target = Arc::new(Target::Firstlight(server));
    for i in 0..load.repeat_runs as usize {
        if stop.is_cancelled() {
            break;
        }
        let bench = Bench { target: Arc::clone(&target), live: Arc::new(Live::default()), ..warm.clone() };
        let _shown = shown("run", &bench);
        records.extend(drive(&bench, plan(format!("r{i}"), i)).await);
    }
    let fitness = meter.stop().with_own_lag(own_lag.as_ref());
    probing.cancel();
    let _ = prober.await;
    let sent = records.iter().filter(|r| r.sent.is_some()).count();
    let mut spans = watch.collect(sent, SPAN_PATIENCE).await;
    spans.forget(flags.drop_spans, load.load_seed);
    Ok(Measured { records, spans, fitness })
}

async fn model(scheduler: Channel) -> anyhow::Result<GetModelResponse> {
    let answer = InferenceClient::new(scheduler).get_model(GetModelRequest {}).await;
    Ok(answer.context("asking the scheduler for its model")?.into_inner())
}

fn prober(flags: &RunFlags, clock: Clock, scheduler: Channel, routes: &[Route]) -> anyhow::Result<Prober> {
    let engines = routes.iter().filter_map(|r| Some((r.direct.clone()?, r.info.name.clone())));
    let mut peers = vec![Peer { channel: scheduler, engine: None }];
    peers.extend(engines.map(|(channel, name)| Peer { channel, engine: Some(name) }));
    Ok(Prober::new(clock, own_domain(flags.clock_drift != Default::default())?, peers))
}

/// The first Ctrl-C ends the load and reports what was measured; the second ends the process.
fn stop_on_ctrl_c() -> CancellationToken {
    let stop = CancellationToken::new();
    let stopped = stop.clone();
    tokio::spawn(async move {
        if tokio::signal::ctrl_c().await.is_ok() {
            stopped.cancel();
        }
        if tokio::signal::ctrl_c().await.is_ok() {
            std::process::exit(130);
        }
    });
    stop
}

fn common(flags: &RunFlags, run_label: &str) -> anyhow::Result<Common> {
    let metadata = flags.load.metadata.iter().map(|pair| metadata(pair)).collect::<anyhow::Result<_>>()?;
    Ok(Common {
        model: String::new(),
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

/// The base prompt: text where the server has a tokenizer, ids where it has none.
fn prompts(load: &LoadFlags, model: &GetModelResponse) -> Prompts {
    let base = match &load.token_ids {
        Some(ids) => Prompt::Ids(ids.repeat(load.prompt_repeats.max(1))),
        None if model.has_tokenizer => {
            Prompt::Text(vec![load.prompt.as_str(); load.prompt_repeats.max(1)].join(" "))
        }
        None => Prompt::Ids((1..=3).cycle().take(3 * load.prompt_repeats.max(1)).collect()),
    };
    let (unique, max_new_tokens) = (load.unique_prompts, load.max_new_tokens);
    Prompts { base, unique, max_new_tokens, vocab_size: model.vocab_size }
}

fn due(arrivals: &Arrivals, n: usize, seed: u64) -> Due {
    match arrivals {
        Arrivals::AfterPrevious(gap) => Due::AfterPrevious { count: n, gap: *gap },
        other => Due::At(other.times(n, seed)),
    }
}

fn run_info(flags: &RunFlags, model: &GetModelResponse) -> RunInfo {
    let first = model.engines.first();
    RunInfo {
        label: flags.output.run_label.clone(),
        target: flags.server.target.clone(),
        model: model.name.clone(),
        device: first.map(|e| e.backend.clone()).unwrap_or_default(),
        dtype: first.map(|e| e.dtype.clone()).unwrap_or_default(),
        threads: first.map_or(0, |e| e.threads),
        engines: model.engines.len(),
        load: flags.load.words(),
        budget: Default::default(),
        interrupted: false,
        client_version: env!("CARGO_PKG_VERSION").to_owned(),
    }
}

/// Enough of a UUIDv7's random end to tell runs apart.
fn short_id() -> String {
    Uuid::now_v7().simple().to_string().split_off(24)
}

fn write(flags: &RunFlags, joined: &[Joined<'_>], results: &Results) -> anyhow::Result<()> {
    let output = &flags.output;
    let json = serde_json::to_string_pretty(results)?;
    if let Some(path) = &output.json_out {
        std::fs::write(path, &json).with_context(|| format!("writing {}", path.display()))?;
    }
    if let Some(path) = &output.jsonl_out {
        rows::write_jsonl(path, joined)?;
    }
    if let Some(path) = &output.csv_out {
        rows::write_csv(path, joined)?;
    }
    if output.json {
        println!("{json}");
    } else if !output.quiet {
        print!("{}", text::page(results));
    }
    Ok(())
}

/// Failure when requests failed, the chain is open though it must close, or Ctrl-C cut the run short.
fn verdict(flags: &RunFlags, records: &[Record], results: &Results) -> std::process::ExitCode {
    let mut bad = results.run.interrupted;
    let failed = records.iter().find_map(|r| match &r.outcome {
        Outcome::Failed { kind, message } => Some(format!("{}: {kind}: {message}", r.id)),
        Outcome::Finished => None,
    });
    if let Some(first) = failed.filter(|_| !flags.output.allow_failures && !results.run.interrupted) {
        eprintln!("{} requests failed; the first: {first}", results.requests.failed);
        bad = true;
    }
    let percent = results.unexplained.percent_of_ttft.unwrap_or(100.0).abs();
    if flags.output.require_closed && (results.unexplained.open > 0 || percent > 0.1) {
        eprintln!("{} chains do not close; {percent:.3} % of TTFT is unexplained", results.unexplained.open);
        bad = true;
    }
    if bad { std::process::ExitCode::FAILURE } else { std::process::ExitCode::SUCCESS }
}
