//! `bench-client whatif`: another budget on recorded traffic, before production tries it.

use std::{path::Path, time::Duration};

use anyhow::Context as _;
use firstlight_proto::v1;

use crate::{
    flags::whatif::WhatIfFlags,
    load::dataset::recorded::{self, Line},
    report::costs::{self, Costs},
    whatif::{
        arrivals::{self, Planned},
        budgets,
        figures::{self, BEYOND_REACH},
        model::Model,
        page::{Report, Tried},
        predict::{Prediction, predict},
        reach::Reach,
        replay::Scenario,
        search::search,
        verify::{self, Live},
    },
};

/// Runs the command.
///
/// # Errors
/// When a file cannot be read, a budget is out of range, or a live run fails.
pub async fn whatif(flags: &WhatIfFlags) -> anyhow::Result<()> {
    anyhow::ensure!(
        flags.speed.is_finite() && flags.speed > 0.0,
        "--speed {} must be a positive number",
        flags.speed
    );
    let costs: Vec<Costs> =
        flags.forwards.iter().map(|path| costs::read(path)).collect::<anyhow::Result<_>>()?;
    let base = costs.last().and_then(|c| c.pair.budget.clone()).unwrap_or_default();
    let mut model = Model::of(&costs)?.with_speed(flags.speed);
    if let Some(engines) = flags.engines {
        model = model.with_engines(engines as usize);
    }
    let (lines, planned) = arriving(flags, &model)?;
    let mut report = Report {
        measured: (!lines.is_empty()).then(|| figures::of_recording(&lines, flags.slo)),
        notes: notes(&lines, &planned, &costs),
        budgets: Vec::new(),
        base,
        model,
    };
    for change in changes(flags, &planned, &mut report)? {
        let budget = budgets::apply(&report.base, &change)?;
        let scenario = scenario(flags, &planned, &report.model, &budget);
        let predicted = predict(scenario, &report.model, flags.replays)?;
        report.notes.extend(beyond_reach(
            &budgets::words(&report.base, &change),
            &predicted,
            report.model.reach,
        ));
        report.budgets.push(Tried { change, predicted, live: Vec::new() });
    }
    if flags.verify {
        run_live(flags, &mut report).await?;
    }
    if let Some(path) = &flags.json_out {
        std::fs::write(path, serde_json::to_string_pretty(&report.json())?)
            .with_context(|| format!("writing {}", path.display()))?;
    }
    if !flags.quiet {
        print!("{}", report.text());
    }
    Ok(())
}

/// What arrives, and the lines of the recording if it is one.
fn arriving(flags: &WhatIfFlags, model: &Model) -> anyhow::Result<(Vec<Line>, Vec<Planned>)> {
    let timeout = flags.load.timeout_ms.map(Duration::from_millis);
    let (delays, load) = (model.delays, &flags.load);
    if let Some(path) = &flags.recording {
        refuse_load_beside(path, load.names())?;
        let text = std::fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
        let lines = recorded::lines(&text).with_context(|| path.display().to_string())?;
        let planned = arrivals::of_recording(&lines, delays, timeout);
        anyhow::ensure!(
            !planned.is_empty(),
            "{} holds no request whose prompt length is known",
            path.display()
        );
        return Ok((lines, planned));
    }
    refuse_unreplayed(load.names())?;
    let trace =
        flags.dataset.load(load.count(None), load.load_seed)?.context("--dataset says what arrives")?;
    let count = load.count(trace.times(1).is_some().then(|| trace.len()));
    let times = load.arrivals(trace.times(count))?.times(count, load.load_seed);
    Ok((Vec::new(), arrivals::of_trace(&trace, &times, delays, load.max_new_tokens, timeout)))
}

/// A recording is the load: flags that ask for another one would change nothing.
fn refuse_load_beside(recording: &Path, given: &[String]) -> anyhow::Result<()> {
    let path = recording.display();
    refuse(given, &["--timeout-ms"], || {
        format!(
            "beside {path}, whose requests arrive as they were recorded: leave it out, or replay their lengths under \
             another load with --dataset recorded --dataset-path {path} and --request-rate or --submit-interval-ms"
        )
    })
}

/// What says when the requests of a dataset arrive, how many tokens they ask for and how long they wait.
const REPLAYED: [&str; 10] = [
    "--num-requests",
    "--submit-interval-ms",
    "--request-rate",
    "--arrival",
    "--burstiness",
    "--to-rate",
    "--over",
    "--max-new-tokens",
    "--load-seed",
    "--timeout-ms",
];

/// A replay follows arrivals: flags about clients and prompts would change nothing.
fn refuse_unreplayed(given: &[String]) -> anyhow::Result<()> {
    refuse(given, &REPLAYED, || {
        format!("is for live runs, a replay goes by {}: leave it out", REPLAYED.join(", "))
    })
}

fn refuse(given: &[String], but: &[&str], reason: impl FnOnce() -> String) -> anyhow::Result<()> {
    let others: Vec<_> = given.iter().map(String::as_str).filter(|flag| !but.contains(flag)).collect();
    anyhow::ensure!(others.is_empty(), "{} {}", others.join(", "), reason());
    Ok(())
}

/// The changes to try: none first, then those asked for, then the best one found.
fn changes(flags: &WhatIfFlags, planned: &[Planned], report: &mut Report) -> anyhow::Result<Vec<v1::Budget>> {
    let mut changes = vec![v1::Budget::default()];
    changes.extend(flags.set.iter().cloned());
    if flags.search {
        let budget = budgets::apply(&report.base, &v1::Budget::default())?;
        let found = search(scenario(flags, planned, &report.model, &budget), &report.base, &report.model)?;
        if found.change == v1::Budget::default() {
            report.notes.push(format!("no budget of {} tried is better than the recorded one", found.tried));
        } else {
            report.notes.push(format!(
                "best of {} budgets tried: {}",
                found.tried,
                budgets::words(&report.base, &found.change)
            ));
            changes.push(found.change);
        }
    }
    Ok(changes)
}

fn scenario<'a>(
    flags: &WhatIfFlags,
    planned: &'a [Planned],
    model: &'a Model,
    budget: &'a budgets::Applied,
) -> Scenario<'a> {
    Scenario { planned, engines: &model.engines, budget, reach: model.reach, slo: flags.slo }
}

async fn run_live(flags: &WhatIfFlags, report: &mut Report) -> anyhow::Result<()> {
    let recording = flags.recording.as_deref().context("--verify needs a recording")?;
    let timeout_ms = flags.load.timeout_ms;
    let live = Live { server: &flags.server, recording, timeout_ms, slo: flags.slo };
    // In turns: whatever the machine does meanwhile, it does to all budgets.
    for i in 1..=flags.verify_runs {
        for tried in &mut report.budgets {
            if !flags.quiet {
                let words = budgets::words(&report.base, &tried.change);
                eprintln!("live run {i} of {}: {words}", flags.verify_runs);
            }
            let budget = budgets::merged(&report.base, &tried.change);
            tried.live.push(verify::measure(&live, &budget).await?);
        }
    }
    Ok(())
}

/// Less of the forwards' time than this, in percent, may be spent beyond what was recorded without a word.
const BEYOND_REACH_PERCENT: f64 = 5.0;

/// What to know of a prediction that rests on forwards larger than any that was recorded.
fn beyond_reach(budget: &str, predicted: &Prediction, reach: Reach) -> Option<String> {
    let percent = predicted.get(BEYOND_REACH)?.value;
    let Reach { prefill, decode } = reach;
    (percent > BEYOND_REACH_PERCENT).then(|| {
        format!(
            "{budget}: {percent:.0} % of the forwards' time is in forwards larger than any recorded ({} prompts, {} \
             prompt tokens, {} decode rows); record some that large, and give --forwards again",
            prefill.prefill_rows, prefill.prefill_tokens, decode.decode_rows
        )
    })
}

/// What has to be known to trust the prediction.
fn notes(lines: &[Line], planned: &[Planned], costs: &[Costs]) -> Vec<String> {
    let mut notes = Vec::new();
    if lines.iter().any(|line| line.cap_wait_ms.is_some()) {
        notes.push("the recorded load was a closed loop; its arrivals are replayed as they were".to_owned());
    }
    if !lines.is_empty() && lines.iter().all(|line| line.sent_ns.is_none()) {
        notes.push(
            "recorded at the scheduler: TTFT and latency are those between its stamps 2 and 8, without the way from \
             and to its clients"
                .to_owned(),
        );
    }
    let left_out = lines.len().saturating_sub(planned.len());
    if left_out > 0 {
        notes
            .push(format!("{left_out} requests were refused before their length was known and are left out"));
    }
    let cached: u64 = lines.iter().map(|line| u64::from(line.cached_tokens.unwrap_or(0))).sum();
    if cached > 0 {
        notes.push(format!("{cached} prompt tokens are taken from the prefix cache, as they were"));
    }
    if costs.last().is_some_and(|c| c.pair.budget.is_none()) {
        notes.push("the recorded budget is not known; the defaults stand for it".to_owned());
    }
    notes
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::flags::{Cli, Command};

    /// What becomes of these flags beside a recording or a dataset.
    fn refused(what: &[&str], load: &[&str]) -> Option<String> {
        let words = [&["bench-client", "whatif", "--forwards", "f.jsonl"], what, load].concat();
        let Command::Whatif(told) = Cli::parse_from(words).command else { panic!("another command") };
        let refused = match &told.recording {
            Some(path) => refuse_load_beside(path, told.load.names()),
            None => refuse_unreplayed(told.load.names()),
        };
        refused.err().map(|error| error.to_string())
    }

    #[test]
    fn load_flags_beside_a_recording_are_refused_with_the_remedy() {
        // Also one that says what is the default.
        for load in [["--request-rate", "20"], ["--num-requests", "8"], ["--max-new-tokens", "64"]] {
            let said = refused(&["run.jsonl"], &load).unwrap();
            for part in [load[0], "leave it out", "--dataset recorded --dataset-path run.jsonl"] {
                assert!(said.contains(part), "{said}");
            }
        }
    }

    #[test]
    fn a_deadline_may_stand_beside_a_recording() {
        assert_eq!(refused(&["run.jsonl"], &["--timeout-ms", "500"]), None);
        assert_eq!(refused(&["run.jsonl"], &[]), None);
    }

    #[test]
    fn of_a_dataset_only_arrivals_are_replayed() {
        let arrivals = [
            "--num-requests=8",
            "--request-rate=9",
            "--arrival=ramp",
            "--to-rate=20",
            "--over=3",
            "--timeout-ms=90",
            "--load-seed=1",
        ];
        assert_eq!(refused(&["--dataset", "random"], &arrivals), None);
        for load in ["--max-concurrency=4", "--unique-prompts", "--metadata=x-tenant=a", "--repeat-runs=3"] {
            let said = refused(&["--dataset", "random"], &[load]).unwrap();
            let flag = load.split('=').next().unwrap();
            assert!(said.starts_with(flag) && said.contains("--request-rate"), "{said}");
        }
    }
}
