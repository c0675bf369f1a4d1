//! A run against an OpenAI-compatible server. It tells no stamps, so only the client's side is measured;
//! where the server exports its own means (vLLM, llama.cpp), they stand beside it.

use std::{sync::Arc, time::Duration};

use firstlight_proto::clock::Clock;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::{
    passes::{Passes, Sent},
    unique_label,
    workload::Workload,
};
use crate::{
    flags::run::RunFlags,
    join::{self, Joined},
    observe::{ClockMap, SpanStore, clocks::own_domain, prometheus::Scrape, server_metrics},
    report::{
        Facts, Results,
        results::{ClockInfo, RunInfo},
        summarize,
    },
    target::{OpenAi, Target, openai::Api},
};

/// Vocabulary that made-up token ids are drawn from: small enough for every model of interest.
const VOCAB_SIZE: u32 = 30_000;

pub async fn run<T>(
    flags: &RunFlags,
    base: &str,
    stop: &CancellationToken,
    then: impl FnOnce(&[Joined<'_>], &Results) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    anyhow::ensure!(!flags.audit.audit, "--audit needs Firstlight's own metrics");
    anyhow::ensure!(flags.output.forwards_out.is_none(), "an OpenAI-compatible server tells no forwards");
    anyhow::ensure!(flags.budget.change().is_none(), "an OpenAI-compatible server takes no budget flags");
    let clock = Clock::with_drift(flags.clock_drift);
    let workload = Workload::of(flags, VOCAB_SIZE, true)?;
    let timeout = flags.load.timeout_ms.map(Duration::from_millis);
    let model = flags.http.model.clone();
    let (api, trust) = (flags.http.openai_api, flags.server.tls.trust());
    let server = OpenAi::connect(base, api, model, extra(flags), timeout, clock, &trust).await?;
    let run = run_info(flags, base, server.model(), &workload);
    let label = unique_label(&flags.output.run_label);
    let passes = Passes { flags, workload: &workload, clock, label, stop };
    let own_lag = passes.self_check().await?;
    let server = Arc::new(Target::OpenAi(Box::new(server)));
    passes.warm_up(&server).await;
    let before = metrics(&server).await;
    let Sent { records, fitness, given_up } = passes.measure(&server).await;
    let after = metrics(&server).await;

    let spans = SpanStore::default();
    let joined = join::join(&records, &spans, &ClockMap::new(own_domain(&clock)?));
    let facts = Facts {
        run: RunInfo { interrupted: stop.is_cancelled(), given_up, ..run },
        clock: ClockInfo::default(),
        dropped_spans: 0,
        fitness: fitness.with_own_lag(own_lag.as_ref()),
        slo: flags.output.slo,
        server: before.zip(after).and_then(|(before, after)| server_metrics::view(&before, &after)),
        audit: None,
    };
    then(&joined, &summarize(&joined, facts))
}

async fn metrics(server: &Target) -> Option<Scrape> {
    match server {
        Target::OpenAi(server) => server.get("/metrics").await.ok().map(|text| Scrape::parse(&text)),
        Target::Firstlight(_) => None,
    }
}

/// Fields beyond the standard ones are sent only when a flag asks for them: strict servers refuse them.
fn extra(flags: &RunFlags) -> Vec<(String, Value)> {
    let sampling = &flags.sampling;
    let mut extra =
        vec![("temperature".to_owned(), json!(sampling.sampling().map_or(0.0, |s| s.temperature)))];
    let mut put = |name: &str, value: Value| extra.push((name.to_owned(), value));
    if sampling.ignore_eos {
        put("ignore_eos", json!(true));
    }
    if sampling.top_k > 0 {
        put("top_k", json!(sampling.top_k));
    }
    if sampling.top_p < 1.0 {
        put("top_p", json!(sampling.top_p));
    }
    if sampling.min_p > 0.0 {
        put("min_p", json!(sampling.min_p));
    }
    if let Some(seed) = sampling.seed {
        put("seed", json!(seed));
    }
    if !sampling.stop.is_empty() {
        put("stop", json!(sampling.stop));
    }
    if flags.load.no_prefix_cache {
        // llama.cpp's name for it.
        put("cache_prompt", json!(false));
    }
    extra
}

fn run_info(flags: &RunFlags, base: &str, model: &str, workload: &Workload) -> RunInfo {
    let api = match flags.http.openai_api {
        Api::Completions => "openai",
        Api::Chat => "openai-chat",
    };
    RunInfo {
        label: flags.output.run_label.clone(),
        target: base.to_owned(),
        api: api.to_owned(),
        model: model.to_owned(),
        load: workload.words.clone(),
        load_seed: flags.load.load_seed,
        client_version: env!("CARGO_PKG_VERSION").to_owned(),
        ..RunInfo::default()
    }
}
