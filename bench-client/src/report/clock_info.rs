//! What is known of the clocks at the end of a run, and the loop that checks it: going from client to
//! scheduler to engine and back to the client must come out at 0, within the sum of the bounds.

use std::collections::BTreeMap;

use firstlight_proto::{clock::Stamp, offset::Offset, v1::ClockOffset};

use super::results::{ClockInfo, ClockPoint};
use crate::{observe::ClockMap, target::Record};

/// Describes `clocks` when ours reads `at`, with what the scheduler reported in `records`.
pub fn clock_info(clocks: &ClockMap, records: &[Record], at: Stamp) -> ClockInfo {
    let reported = reported(records);
    let Some(scheduler) = clocks.scheduler().estimate(at) else { return ClockInfo::default() };
    let mut info = ClockInfo {
        scheduler: Some(point(scheduler, clocks.scheduler().same_clock())),
        ..ClockInfo::default()
    };
    for (name, estimator) in clocks.engines() {
        let Some(engine) = estimator.estimate(at) else { continue };
        info.engines.insert(name.clone(), point(engine, estimator.same_clock()));
        if let Some(told) = reported.get(name.as_str()).filter(|_| info.loop_residual_ms.is_none()) {
            let residual = scheduler.offset_ns + told.offset_ns - engine.offset_ns;
            info.loop_residual_ms = Some(residual as f64 / 1e6);
            info.loop_bound_ms = Some((scheduler.bound_ns + told.bound_ns + engine.bound_ns) as f64 / 1e6);
        }
    }
    for (name, told) in reported {
        // Out of our own reach: seen through the scheduler's eyes.
        let through = Offset {
            offset_ns: scheduler.offset_ns + told.offset_ns,
            bound_ns: scheduler.bound_ns + told.bound_ns,
        };
        let same_clock = told.same_domain && clocks.scheduler().same_clock();
        info.engines.entry(name.to_owned()).or_insert(point(through, same_clock));
    }
    info.engine = info.engines.values().next().copied();
    info
}

/// The latest word of the scheduler on each engine's clock.
fn reported(records: &[Record]) -> BTreeMap<&str, &ClockOffset> {
    let told = records.iter().filter_map(|r| r.timeline.as_ref()?.engine_clock.as_ref());
    let mut latest: BTreeMap<&str, &ClockOffset> = BTreeMap::new();
    for offset in told {
        let kept = latest.entry(offset.peer.as_str()).or_insert(offset);
        if offset.at_ns > kept.at_ns {
            *kept = offset;
        }
    }
    latest
}

fn point(offset: Offset, same_clock: bool) -> ClockPoint {
    ClockPoint {
        offset_ms: offset.offset_ns as f64 / 1e6,
        bound_ms: offset.bound_ns as f64 / 1e6,
        same_clock,
    }
}
