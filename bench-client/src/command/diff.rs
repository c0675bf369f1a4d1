//! `bench-client diff`: what moved between two sets of runs. Exit codes are those of diff(1).

use std::process::ExitCode;

use anyhow::Context as _;
use firstlight_proto::serve::exit::exit;

use crate::{
    diff::{Diff, Side, compare, results::GateVerdict, text},
    flags::diff::DiffFlags,
};

/// A limit was exceeded.
const EXCEEDED: u8 = 1;
/// The runs cannot be read or compared.
const TROUBLE: u8 = 2;

/// Runs the command: 0, 1 when a limit was exceeded, 2 when the runs cannot be read or compared.
pub fn diff(flags: &DiffFlags) -> ExitCode {
    match compared(flags) {
        Ok(diff) if diff.gates.iter().any(|gate| gate.verdict == GateVerdict::Exceeded) => EXCEEDED.into(),
        Ok(_) => ExitCode::SUCCESS,
        Err(error) => {
            exit("bench-client diff", Err(error));
            TROUBLE.into()
        }
    }
}

fn compared(flags: &DiffFlags) -> anyhow::Result<Diff> {
    let (a, b) = (Side::read(&flags.a)?, Side::read(&flags.b)?);
    let diff = compare(&a, &b, &flags.fail_if, flags.seed)?;
    for gate in &flags.fail_if {
        let judged = diff.gates.iter().any(|result| result.fail_if == gate.text());
        anyhow::ensure!(judged, "--fail-if {:?}: {} was not measured in these runs", gate.text(), gate.name);
    }
    let json = serde_json::to_string_pretty(&diff)?;
    if let Some(path) = &flags.json_out {
        std::fs::write(path, &json).with_context(|| format!("writing {}", path.display()))?;
    }
    if flags.json {
        println!("{json}");
    } else if !flags.quiet {
        print!("{}", text::page(&diff));
    }
    Ok(diff)
}
