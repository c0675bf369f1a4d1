//! `bench-client record`: what other clients send, as the scheduler's spans tell of it.

use std::{io::IsTerminal as _, time::Duration};

use anyhow::Context as _;
use firstlight_proto::{
    clock::{Clock, Stamp},
    v1::{
        BudgetState, ClockOffset, GetModelRequest, GetModelResponse, ProbeClockRequest, WatchSpansRequest,
        inference_client::InferenceClient, telemetry_client::TelemetryClient,
    },
};
use indicatif::{ProgressBar, ProgressStyle};
use tonic::transport::Channel;

use crate::{
    flags::record::RecordFlags,
    join::heard,
    observe::{ClockMap, SpanStore, clocks::own_domain, lease, watch::Watch},
    report::{
        Facts, Results,
        costs::{self, Costs},
        results::RunInfo,
        rows, summarize, text, vllm,
    },
    target::firstlight::{connect, connect_over},
};

/// The requests in flight have ended when there is no news of them for so long.
const QUIET: Duration = Duration::from_millis(500);
const REFRESH: Duration = Duration::from_millis(500);

/// Runs the command.
///
/// # Errors
/// When the scheduler does not answer, nothing was heard, or a file cannot be written.
pub async fn record(flags: &RecordFlags) -> anyhow::Result<()> {
    let tls = flags.server.tls.dialer().context("TLS")?;
    let scheduler = connect_over(&flags.server.target, tls).await?;
    let budget = budget(flags).await;
    // All events: a request in flight is waited for from its first token on.
    let request =
        WatchSpansRequest { run_label: flags.run_label.clone(), forwards: true, ..Default::default() };
    let watch = Watch::open(scheduler.clone(), &[], request).await;
    let watch = watch.context("watching the scheduler's spans")?;
    let from = clock_of(scheduler.clone()).await?;
    let until = listen(flags, &scheduler, &watch).await?;
    let spans = watch.close().await;
    if spans.dropped() > 0 {
        tracing::warn!("{} spans and forwards were lost: this client was too slow", spans.dropped());
    }
    let model = InferenceClient::new(scheduler).get_model(GetModelRequest {}).await;
    let model = model.context("asking the scheduler for its model")?.into_inner();
    let budget = still(budget, self::budget(flags).await);
    write(flags, &spans, &model, budget, (from, until))
}

/// Listens until the time is up or Ctrl-C, and then for the ends of requests that are in flight. The scheduler's clock
/// when the time was up.
async fn listen(flags: &RecordFlags, scheduler: &Channel, watch: &Watch) -> anyhow::Result<Stamp> {
    if !flags.quiet {
        let ends = flags.lasting.map_or("until Ctrl-C".to_owned(), |time| format!("for {time:?}"));
        eprintln!("recording what {} is asked, {ends}", flags.server.target);
    }
    let line = spinner(flags.quiet);
    let live = show(&line, watch);
    let up = tokio::time::sleep(flags.lasting.unwrap_or(Duration::MAX));
    tokio::select! {
        () = up => {}
        () = live => {}
        interrupted = tokio::signal::ctrl_c() => interrupted.context("waiting for Ctrl-C")?,
    }
    line.finish_and_clear();
    let until = clock_of(scheduler.clone()).await?;
    tokio::select! {
        () = tokio::time::sleep(flags.drain) => {
            let (_, open) = watch.look(|spans| spans.queued_by(until));
            tracing::warn!("{open} requests have not ended; they are taken to go on to their limit");
        }
        () = ended(watch, until) => {}
        interrupted = tokio::signal::ctrl_c() => interrupted.context("waiting for Ctrl-C")?,
    }
    Ok(until)
}

/// Returns when the requests queued by `until` have ended, as far as it can be told: none that was heard of is open,
/// and no other was heard of for a while.
async fn ended(watch: &Watch, until: Stamp) {
    let mut before = None;
    loop {
        tokio::time::sleep(QUIET).await;
        let (heard, open) = watch.look(|spans| spans.queued_by(until));
        if open == 0 && before == Some(heard) {
            return;
        }
        before = Some(heard);
    }
}

/// The live line, on a terminal only.
fn spinner(quiet: bool) -> ProgressBar {
    if quiet || !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{elapsed} {msg}");
    ProgressBar::new_spinner().with_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()))
}

/// Keeps the live line up to date; never returns.
async fn show(line: &ProgressBar, watch: &Watch) {
    let mut tick = tokio::time::interval(REFRESH);
    loop {
        tick.tick().await;
        line.set_message(watch.look(|spans| {
            let (ended, open, forwards) = (spans.finished(), spans.in_flight(), spans.forwards().len());
            format!("{ended} requests ended · {open} past their first token · {forwards} forwards")
        }));
    }
}

async fn clock_of(scheduler: Channel) -> anyhow::Result<Stamp> {
    let answer = TelemetryClient::new(scheduler).probe_clock(ProbeClockRequest::default()).await;
    Ok(Stamp::from_ns(answer.context("asking the scheduler for its clock")?.into_inner().t2_ns))
}

/// The budget in force, where the admin listener can be reached.
async fn budget(flags: &RecordFlags) -> Option<BudgetState> {
    lease::current(connect(&flags.server.admin).await.ok()?).await.ok()
}

/// The later of two readings of the budget; warns when it has changed.
fn still(before: Option<BudgetState>, after: Option<BudgetState>) -> Option<BudgetState> {
    let version = |state: &Option<BudgetState>| state.as_ref().map(|state| state.version);
    if version(&before) != version(&after) {
        tracing::warn!("the budget changed while its traffic was recorded; what-if goes by the last one");
    }
    after
}

fn write(
    flags: &RecordFlags,
    spans: &SpanStore,
    model: &GetModelResponse,
    budget: Option<BudgetState>,
    (from, until): (Stamp, Stamp),
) -> anyhow::Result<()> {
    let clocks: Vec<ClockOffset> = model.engines.iter().filter_map(|engine| engine.clock.clone()).collect();
    let records = heard::records(spans, until, &clocks);
    anyhow::ensure!(!records.is_empty(), "no request reached its first token or its end meanwhile");
    let joined = heard::join(&records, spans, &ClockMap::new(own_domain(&Clock::default())?));
    let budget = budget.and_then(|state| state.budget);
    let facts = Facts {
        run: run_info(flags, model, until.since(from)),
        dropped_spans: spans.dropped(),
        ..Facts::default()
    };
    // Of tokens between the first and the last nothing is told.
    let results =
        Results { itl: Default::default(), itl_per_message: Default::default(), ..summarize(&joined, facts) };
    rows::write_jsonl(&flags.jsonl_out, &joined, &results)?;
    costs::write(&flags.forwards_out, &Costs::of(&model.engines, budget, &joined, spans.forwards()))?;
    if let Some(path) = &flags.json_out {
        let json = serde_json::to_string_pretty(&vllm::with_fields(&results)?)?;
        std::fs::write(path, json).with_context(|| format!("writing {}", path.display()))?;
    }
    if !flags.quiet {
        print!("{}", text::page(&results, false));
        println!(
            "{} forwards. TTFT and latency begin when the scheduler has the request and end when it has the token.",
            spans.forwards().len()
        );
    }
    Ok(())
}

fn run_info(flags: &RecordFlags, model: &GetModelResponse, lasted_ns: i64) -> RunInfo {
    RunInfo {
        label: if flags.run_label.is_empty() { "recorded".to_owned() } else { flags.run_label.clone() },
        load: format!("{:.1} s of traffic of other clients", lasted_ns as f64 / 1e9),
        ..RunInfo::of_pair(&flags.server.target, model)
    }
}
