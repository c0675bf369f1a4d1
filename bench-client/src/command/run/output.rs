//! The page, the files and the exit code of a run.

use std::process::ExitCode;

use anyhow::Context as _;

use crate::{
    flags::run::RunFlags,
    join::Joined,
    report::{Results, html, rows, text, vllm},
    target::Outcome,
};

/// Most of TTFT that may be unexplained when chains must close, %.
const CLOSED_PERCENT: f64 = 0.1;

pub fn write(flags: &RunFlags, joined: &[Joined<'_>], results: &Results) -> anyhow::Result<()> {
    let output = &flags.output;
    let json = serde_json::to_string_pretty(&vllm::with_fields(results)?)?;
    if let Some(path) = &output.json_out {
        std::fs::write(path, &json).with_context(|| format!("writing {}", path.display()))?;
    }
    if let Some(path) = &output.jsonl_out {
        rows::write_jsonl(path, joined, results)?;
    }
    if let Some(path) = &output.csv_out {
        rows::write_csv(path, joined, results)?;
    }
    if let Some(path) = &output.html_out {
        let lines: Vec<_> = joined.iter().map(|j| rows::row(j, results).into_iter().collect()).collect();
        let page = html::page(results, &lines);
        std::fs::write(path, page).with_context(|| format!("writing {}", path.display()))?;
    }
    if output.json {
        println!("{json}");
    } else if !output.quiet {
        print!("{}", text::page(results, !output.no_definitions));
    }
    Ok(())
}

/// Failure when requests failed, a chain is open that must close, the audit found a disagreement, or
/// Ctrl-C cut the run short.
pub fn verdict(flags: &RunFlags, joined: &[Joined<'_>], results: &Results) -> ExitCode {
    let mut bad = results.run.interrupted;
    let failed = joined.iter().find_map(|j| match &j.record.outcome {
        Outcome::Failed { kind, message } => Some(format!("{}: {kind}: {message}", j.record.id)),
        Outcome::Finished => None,
    });
    if let Some(first) = failed.filter(|_| !flags.output.allow_failures && !results.run.interrupted) {
        eprintln!("{} requests failed; the first: {first}", results.requests.failed);
        bad = true;
    }
    let percent = results.unexplained.percent_of_ttft.unwrap_or(100.0).abs();
    if flags.output.require_closed && (results.unexplained.open > 0 || percent > CLOSED_PERCENT) {
        eprintln!("{} chains do not close; {percent:.3} % of TTFT is unexplained", results.unexplained.open);
        bad = true;
    }
    for check in results.audit.iter().flat_map(|audit| audit.disagreements()) {
        let ((left, a), (right, b)) = (&check.left, &check.right);
        eprintln!(
            "audit: {}: {left} {a} and {right} {b} disagree (tolerance {:.6})",
            check.what, check.tolerance
        );
        bad = true;
    }
    if bad { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}
