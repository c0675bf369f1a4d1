//! How long each hand-over between the scheduler and an engine took, round by round. Pure.

use std::collections::BTreeMap;

use firstlight_proto::{
    inject::Segment,
    v1::{Cause, Forward},
};
use serde::{Deserialize, Serialize};

use crate::join::Joined;

/// Most times of each kind that are kept, evenly spread over the run.
const KEPT: usize = 1_000;

/// Times in the order in which they were taken, ms.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct HandOverTimes {
    /// From a round's admission until the engine has it.
    pub dispatch_ms: Vec<f64>,
    /// From a round's arrival at an engine that stands still until its forward starts.
    pub wake_ms: Vec<f64>,
    /// From the start of a forward with a new round until the scheduler sends the next one, where it waited for that.
    pub begun_ms: Vec<f64>,
    /// From a first token in the engine until the scheduler has it.
    pub return_ms: Vec<f64>,
}

/// What the requests of a round tell of it. Scheduler's clock, except where it says otherwise; ns.
struct Round {
    admitted: i64,
    dispatch: i64,
    /// Start of the forward with its first prompt row, on the engine's clock.
    began_there: i64,
    /// When it arrived, on the engine's clock.
    received_there: i64,
    /// When the first of its requests was queued.
    queued: i64,
    /// A request of it waited for something that no beginning of a round brings.
    otherwise_held: bool,
    /// Segment `return` by the time of its first tokens: chunks may part a round.
    back: BTreeMap<i64, i64>,
}

/// The hand-overs of a run.
pub fn times(joined: &[Joined<'_>], forwards: &[Forward]) -> HandOverTimes {
    let rounds = rounds(joined);
    let mut times = HandOverTimes::default();
    for (engine, rounds) in &rounds {
        let mut forwards: Vec<&Forward> = forwards.iter().filter(|f| f.engine == **engine).collect();
        forwards.sort_by_key(|f| f.start_ns);
        let mut began: Option<i64> = None;
        for round in rounds.values() {
            times.dispatch_ms.push(ms(round.dispatch));
            times.return_ms.extend(round.back.values().copied().map(ms));
            times.wake_ms.extend(round.wake(&forwards).map(ms));
            let waited_for = began.filter(|began| round.queued <= *began && !round.otherwise_held);
            times.begun_ms.extend(waited_for.map(|began| ms(round.admitted - began)));
            began = began.max(Some(round.began()));
        }
    }
    let HandOverTimes { dispatch_ms, wake_ms, begun_ms, return_ms } = times;
    HandOverTimes {
        dispatch_ms: spread(dispatch_ms),
        wake_ms: spread(wake_ms),
        begun_ms: spread(begun_ms),
        return_ms: spread(return_ms),
    }
}

/// Rounds by engine and by the time of their admission.
fn rounds<'a>(joined: &'a [Joined<'_>]) -> BTreeMap<&'a str, BTreeMap<i64, Round>> {
    let mut rounds: BTreeMap<&str, BTreeMap<i64, Round>> = BTreeMap::new();
    for request in joined {
        let (Some(chain), Some(scheduler), Some(engine)) =
            (&request.chain, request.views.scheduler, request.views.engine)
        else {
            continue;
        };
        let (Some(dispatch), Some(back)) = (chain.segment(Segment::Dispatch), chain.segment(Segment::Return))
        else {
            continue;
        };
        let of_engine = rounds.entry(&scheduler.engine).or_default();
        let round = of_engine.entry(scheduler.admit_ns).or_insert_with(|| Round {
            admitted: scheduler.admit_ns,
            dispatch: dispatch.ns,
            began_there: engine.admit_ns,
            received_there: engine.received_ns,
            queued: scheduler.queued_ns,
            otherwise_held: false,
            back: BTreeMap::new(),
        });
        round.began_there = round.began_there.min(engine.admit_ns);
        round.queued = round.queued.min(scheduler.queued_ns);
        let held = [Cause::MaxActive, Cause::KvBlocks, Cause::NoEngine, Cause::EngineLost, Cause::Preempted];
        round.otherwise_held |= held.iter().any(|cause| chain.causes[*cause as usize] > 0);
        round.back.insert(engine.first_token_ns, back.ns);
    }
    rounds
}

impl Round {
    /// When it began, on the scheduler's clock.
    fn began(&self) -> i64 {
        self.admitted + self.dispatch + (self.began_there - self.received_there)
    }

    /// How long the engine took to wake up for it, if it stood still.
    fn wake(&self, forwards: &[&Forward]) -> Option<i64> {
        let before = forwards.partition_point(|f| f.start_ns < self.began_there);
        let last = before.checked_sub(1).map(|i| forwards[i]);
        let stood = last.is_none_or(|last| last.active == 0 && last.end_ns <= self.received_there);
        stood.then_some(self.began_there - self.received_there)
    }
}

fn spread(times: Vec<f64>) -> Vec<f64> {
    if times.len() <= KEPT {
        return times;
    }
    (0..KEPT).map(|i| times[i * times.len() / KEPT]).collect()
}

fn ms(ns: i64) -> f64 {
    ns as f64 / 1e6
}

#[cfg(test)]
mod tests {
    use firstlight_proto::{
        clock::Stamp,
        v1::{
            CauseTime, ClockDomain, EngineTimeline, SchedulerTimeline, Span, SpanBatch, SpanEvent,
            span::Timeline,
        },
    };

    use super::*;
    use crate::{
        join::heard,
        observe::{ClockMap, SpanStore},
    };

    fn domain() -> Option<ClockDomain> {
        Some(ClockDomain { boot_id: "one".into(), ..ClockDomain::default() })
    }

    /// Stamps 3 to 8 in µs, and a cause that it waited for, of a request by itself in its round.
    fn spans(id: &str, us: [i64; 6], cause: Cause) -> [Span; 2] {
        let [queued_ns, admit_ns, received_ns, began, sampled, first_token_ns] = us.map(|us| us * 1_000);
        let scheduler = SchedulerTimeline {
            domain: domain(),
            received_ns: queued_ns,
            queued_ns,
            admit_ns,
            first_token_ns,
            queue_wait_ns: admit_ns - queued_ns,
            queue_wait_by_cause: vec![CauseTime { cause: cause.into(), ns: admit_ns - queued_ns }],
            engine: "e".into(),
            ..SchedulerTimeline::default()
        };
        let engine = EngineTimeline {
            engine: "e".into(),
            domain: domain(),
            received_ns,
            admit_ns: began,
            first_token_ns: sampled,
            ..EngineTimeline::default()
        };
        [Timeline::Scheduler(scheduler), Timeline::Engine(engine)].map(|timeline| Span {
            request_id: id.into(),
            event: SpanEvent::FirstToken.into(),
            timeline: Some(timeline),
            ..Span::default()
        })
    }

    fn forward(start_us: i64, end_us: i64, active: u32) -> Forward {
        Forward {
            engine: "e".into(),
            start_ns: start_us * 1_000,
            end_ns: end_us * 1_000,
            active,
            ..Forward::default()
        }
    }

    #[test]
    fn each_hand_over_is_told_from_the_rounds_on_both_sides_of_it() {
        let requests = [
            // Wakes the engine; the next one waits until it has begun.
            spans("a", [100, 100, 120, 200, 500, 540], Cause::EngineBusy),
            spans("b", [150, 260, 280, 510, 900, 930], Cause::EngineBusy),
            // Waits for a place, which no beginning brings; comes to an engine at work.
            spans("c", [300, 950, 960, 1_000, 1_300, 1_350], Cause::MaxActive),
            // Comes when nothing waits, to an engine that stands still.
            spans("d", [2_000, 2_000, 2_050, 2_060, 2_400, 2_410], Cause::EngineBusy),
        ];
        let mut store = SpanStore::default();
        store.add(SpanBatch { spans: requests.into_iter().flatten().collect(), ..SpanBatch::default() });
        let records = heard::records(&store, Stamp::from_ns(i64::MAX), &[]);
        let joined = heard::join(&records, &store, &ClockMap::new(ClockDomain::default()));
        let forwards =
            [forward(200, 500, 1), forward(510, 900, 1), forward(1_000, 1_300, 0), forward(2_060, 2_400, 0)];
        let told = times(&joined, &forwards);
        let expected = HandOverTimes {
            dispatch_ms: vec![0.02, 0.02, 0.01, 0.05],
            wake_ms: vec![0.08, 0.01],
            begun_ms: vec![0.06],
            return_ms: vec![0.04, 0.03, 0.05, 0.01],
        };
        assert_eq!(told, expected);
    }
}
