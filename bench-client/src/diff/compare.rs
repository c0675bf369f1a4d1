//! From pairs to results.

use firstlight_proto::cause;

use super::{
    Diff, Gate, Side,
    bootstrap::moved,
    pairs::{Incomparable, Pairs},
    quantile::Statistic,
    results::{Breakdown, Method, Movement, SideInfo},
    side::{TIMES, UNEXPLAINED},
};
use crate::join::part_names;

const INTERVAL: &str = "95 %: paired bootstrap of blocks of neighbouring requests and of whole runs, \
     Student's t; quantiles after Harrell and Davis";
/// Statistics at which TTFT is taken apart.
const TAKEN_APART: [&str; 3] = ["mean", "p50", "p99"];

/// Names and quantiles of the statistics of a figure; the mean has none.
pub const STATISTICS: [(&str, Option<f64>); 4] =
    [("mean", None), ("p50", Some(0.50)), ("p95", Some(0.95)), ("p99", Some(0.99))];

/// Compares `b` with `a`; `seed` is the resampling's.
///
/// # Errors
/// When they are not runs of one load.
pub fn compare(a: &Side, b: &Side, gates: &[Gate], seed: u64) -> Result<Diff, Incomparable> {
    let pairs = Pairs::of(a, b)?;
    let mut diff = Diff { load: a.load.clone(), a: side(a), b: side(b), ..Diff::default() };
    take_ttft_apart(&mut diff, &pairs, seed);
    let asked = gates.iter().map(|gate| gate.name);
    let mut times: Vec<&str> = TIMES.into_iter().chain(asked).collect();
    times.sort_unstable();
    times.dedup();
    for time in times {
        let Some(framed) = pairs.framed(time, &[], seed) else { continue };
        let n = framed.layout.runs.iter().sum();
        let statistics = STATISTICS.map(|(_, q)| statistic(q, n));
        let columns = moved(&framed.a, &framed.b, &statistics, &framed.layout);
        for ((name, _), column) in STATISTICS.into_iter().zip(columns) {
            diff.figures.insert(format!("{time}_{name}"), column[0].into());
        }
    }
    diff.gates = gates.iter().filter_map(|gate| gate.judge(&diff.figures)).collect();
    Ok(diff)
}

fn take_ttft_apart(diff: &mut Diff, pairs: &Pairs<'_>, seed: u64) {
    let segments: Vec<&str> = part_names().into_iter().chain([UNEXPLAINED]).collect();
    let causes = cause::ALL.map(|c| c.label());
    // A column of nothing but zeros moves nowhere.
    let columns: Vec<&str> =
        segments.iter().copied().chain(causes).filter(|name| pairs.any_in(name)).collect();
    let Some(framed) = pairs.framed("ttft", &columns, seed) else { return };
    let n = framed.layout.runs.iter().sum();
    diff.method = Method { pairs: n, block: framed.layout.block, seed, interval: INTERVAL };
    let wanted = STATISTICS.into_iter().filter(|(name, _)| TAKEN_APART.contains(name));
    let statistics: Vec<Statistic> = wanted.clone().map(|(_, q)| statistic(q, n)).collect();
    let all = moved(&framed.a, &framed.b, &statistics, &framed.layout);
    for ((name, _), moved) in wanted.zip(all) {
        let movement = |column: &str| {
            let place = columns.iter().position(|c| *c == column)?;
            Some((columns[place], Movement::from(moved[place + 1])))
        };
        let breakdown = Breakdown {
            ttft: moved[0].into(),
            segments: segments.iter().map(|s| movement(s).unwrap_or((s, Movement::default()))).collect(),
            causes: causes.iter().filter_map(|c| movement(c)).collect(),
        };
        diff.ttft.insert(name, breakdown);
    }
}

fn statistic(quantile: Option<f64>, n: usize) -> Statistic {
    quantile.map_or(Statistic::Mean, |q| Statistic::quantile(q, n))
}

fn side(side: &Side) -> SideInfo {
    let requests = || side.runs.iter().flat_map(|run| run.values());
    SideInfo {
        label: side.label.clone(),
        runs: side.runs.len(),
        requests: requests().count(),
        failed: requests().filter(|r| !r.completed).count(),
        invalid: side.invalid,
    }
}
