//! What the pair costs: every forward of its engines, and the delays between the three processes. Written by
//! `run --forwards-out`, read by `whatif`: a line that says what the pair is, then a line per forward.

use std::{
    fs::File,
    io::{BufRead as _, BufReader, BufWriter, Write as _},
    path::Path,
};

use anyhow::Context as _;
use firstlight_proto::{
    inject::Segment,
    v1::{Budget, EngineInfo, Forward},
};
use serde::{Deserialize, Serialize};

use super::hand_overs::{self, HandOverTimes};
use crate::join::Joined;

/// The costs of a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Costs {
    /// What the pair is.
    pub pair: PairShape,
    /// Forwards, as they ended.
    pub forwards: Vec<ForwardLine>,
}

/// What the pair is, but for its forwards.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PairShape {
    /// Its engines.
    pub engines: Vec<EngineLine>,
    /// The budget in force, where it could be read.
    pub budget: Option<Budget>,
    /// Mean delays between the processes.
    pub delays: Delays,
    /// Hand-overs between scheduler and engines, one by one.
    #[serde(default)]
    pub hand_overs: HandOverTimes,
}

/// What an engine can hold.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EngineLine {
    /// Its name.
    pub name: String,
    /// cpu, cuda or sim.
    pub backend: String,
    /// Tokens per KV block.
    pub block_size: u32,
    /// Blocks in its pool.
    pub kv_blocks: u32,
    /// Most sequences at once.
    pub max_sequences: u32,
    /// Most positions of a sequence.
    pub context_length: u32,
    /// Prompt and decode rows share one forward per step.
    pub mixed: bool,
}

/// Mean delays outside of queue and engine, ms.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Delays {
    /// From the intended send time until the request is queued: `client_lag`, `ingress` and `accept`.
    pub before_ms: f64,
    /// `dispatch`.
    pub dispatch_ms: f64,
    /// `return`.
    pub return_ms: f64,
    /// `deliver`.
    pub deliver_ms: f64,
}

/// One forward, by the names of the proto's `Forward`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ForwardLine {
    /// Engine.
    pub engine: String,
    /// Its clock at the start, ns.
    pub start_ns: i64,
    /// Its clock at the end, ns.
    pub end_ns: i64,
    /// Chunks of prompts.
    pub prefill_rows: u32,
    /// Their tokens.
    pub prefill_tokens: u32,
    /// Rows that decoded.
    pub decode_rows: u32,
    /// The size they were padded to.
    pub bucket: u32,
    /// Pairs of a token and a position it attends to.
    pub attended: u64,
    /// Sequences in the engine after it.
    pub active: u32,
}

impl Costs {
    /// The costs of a run under one budget.
    pub fn of(
        engines: &[EngineInfo],
        budget: Option<Budget>,
        joined: &[Joined<'_>],
        forwards: &[Forward],
    ) -> Self {
        let pair = PairShape {
            engines: engines.iter().map(engine).collect(),
            budget,
            delays: delays(joined),
            hand_overs: hand_overs::times(joined, forwards),
        };
        Self { pair, forwards: forwards.iter().map(forward).collect() }
    }
}

/// Writes `costs` to `path`.
///
/// # Errors
/// Names the file that cannot be written.
pub fn write(path: &Path, costs: &Costs) -> anyhow::Result<()> {
    let written = || -> anyhow::Result<()> {
        let mut out = BufWriter::new(File::create(path)?);
        writeln!(out, "{}", serde_json::to_string(&costs.pair)?)?;
        for forward in &costs.forwards {
            writeln!(out, "{}", serde_json::to_string(forward)?)?;
        }
        Ok(out.flush()?)
    };
    written().with_context(|| format!("writing {}", path.display()))
}

/// Reads what [`write`] wrote.
///
/// # Errors
/// Names the file, and the line that is no such line.
pub fn read(path: &Path) -> anyhow::Result<Costs> {
    let read = || -> anyhow::Result<Costs> {
        let mut lines = BufReader::new(File::open(path)?).lines();
        let first = lines.next().transpose()?.unwrap_or_default();
        let pair = serde_json::from_str(&first).context("line 1 was not written by run --forwards-out")?;
        let mut forwards = Vec::new();
        for (i, line) in lines.enumerate() {
            forwards.push(serde_json::from_str(&line?).with_context(|| format!("line {}", i + 2))?);
        }
        Ok(Costs { pair, forwards })
    };
    read().with_context(|| format!("reading {}", path.display()))
}

fn engine(info: &EngineInfo) -> EngineLine {
    EngineLine {
        name: info.name.clone(),
        backend: info.backend.clone(),
        block_size: info.block_size,
        kv_blocks: info.kv_blocks,
        max_sequences: info.max_sequences,
        context_length: info.context_length,
        mixed: info.mixed,
    }
}

fn forward(f: &Forward) -> ForwardLine {
    ForwardLine {
        engine: f.engine.clone(),
        start_ns: f.start_ns,
        end_ns: f.end_ns,
        prefill_rows: f.prefill_rows,
        prefill_tokens: f.prefill_tokens,
        decode_rows: f.decode_rows,
        bucket: f.bucket,
        attended: f.attended,
        active: f.active,
    }
}

fn delays(joined: &[Joined<'_>]) -> Delays {
    let mean = |segments: &[Segment]| {
        let sums: Vec<i64> = joined
            .iter()
            .filter_map(|j| segments.iter().map(|s| Some(j.chain.as_ref()?.segment(*s)?.ns)).sum())
            .collect();
        sums.iter().sum::<i64>() as f64 / sums.len().max(1) as f64 / 1e6
    };
    Delays {
        before_ms: mean(&[Segment::ClientLag, Segment::Ingress, Segment::Accept]),
        dispatch_ms: mean(&[Segment::Dispatch]),
        return_ms: mean(&[Segment::Return]),
        deliver_ms: mean(&[Segment::Deliver]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costs_read_back_as_written() {
        let path = std::env::temp_dir().join(format!("firstlight-costs-{}.jsonl", std::process::id()));
        let budget = Budget { max_pending: Some(7), policy: Some("pack".into()), ..Budget::default() };
        let pair = PairShape {
            engines: vec![EngineLine { name: "e".into(), kv_blocks: 9, ..EngineLine::default() }],
            budget: Some(budget),
            delays: Delays { before_ms: 0.5, ..Delays::default() },
            hand_overs: HandOverTimes { wake_ms: vec![0.25], ..HandOverTimes::default() },
        };
        let forwards = vec![ForwardLine { decode_rows: 3, attended: 99, ..ForwardLine::default() }; 2];
        let costs = Costs { pair, forwards };
        write(&path, &costs).unwrap();
        let again = read(&path);
        std::fs::remove_file(&path).unwrap();
        assert_eq!(again.unwrap(), costs);
    }
}
