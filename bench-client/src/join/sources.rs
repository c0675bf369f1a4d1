//! Which span or message each process's stamps are taken from. A direct span is preferred, then one
//! relayed by the scheduler; the timeline in the final message stands in for a lost one.

use firstlight_proto::v1::{Asked, ClockOffset, EngineTimeline, SchedulerTimeline};

use crate::{
    observe::spans::{EngineSpan, Heard},
    target::Record,
};

/// How a process's stamps of one request came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// From the process itself.
    Direct,
    /// From an engine, passed on by the scheduler.
    Relayed,
    /// From the final message of the request's stream.
    Final,
    /// Not at all.
    Missing,
}

impl Source {
    /// In one word.
    pub fn label(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::Relayed => "relayed",
            Self::Final => "final",
            Self::Missing => "missing",
        }
    }
}

/// The stamps to use for one request.
#[derive(Clone, Copy, Debug)]
pub struct Views<'a> {
    /// The scheduler's.
    pub scheduler: Option<&'a SchedulerTimeline>,
    /// How they came.
    pub scheduler_source: Source,
    /// The engine's, of the attempt that reached the client.
    pub engine: Option<&'a EngineTimeline>,
    /// How they came.
    pub engine_source: Source,
    /// The engine's clock as the scheduler saw it at the end of the request.
    pub engine_clock: Option<&'a ClockOffset>,
    /// What was asked for, where a span told it.
    pub asked: Option<&'a Asked>,
    /// How it ended, in the scheduler's words.
    pub outcome: Option<&'a str>,
    /// Every attempt that reached a first token in an engine, as far as it was told.
    pub attempts: &'a [EngineSpan],
}

/// Chooses among what was heard of a request and its final message.
pub fn views<'a>(record: &'a Record, heard: Option<&'a Heard>) -> Views<'a> {
    let timeline = record.timeline.as_ref();
    let last_word = timeline.and_then(|t| t.scheduler.as_ref());
    let span = heard.and_then(|h| h.scheduler.as_ref());
    let complete = |s: &&SchedulerTimeline| s.first_token_ns != 0 || record.first_token().is_none();
    let (scheduler, scheduler_source) = match (span.filter(complete), last_word) {
        (Some(span), _) => (Some(span), Source::Direct),
        (None, Some(last)) => (Some(last), Source::Final),
        (None, None) => (span, if span.is_some() { Source::Direct } else { Source::Missing }),
    };
    let engine_last = timeline.and_then(|t| t.engine.as_ref());
    let span = heard.and_then(|h| attempt(&h.engine, engine_last, scheduler));
    let (engine, engine_source) = match (span, engine_last) {
        (Some(span), _) if span.direct => (Some(&span.timeline), Source::Direct),
        (Some(span), _) => (Some(&span.timeline), Source::Relayed),
        (None, Some(last)) => (Some(last), Source::Final),
        (None, None) => (None, Source::Missing),
    };
    let engine_clock = timeline.and_then(|t| t.engine_clock.as_ref());
    let attempts = heard.map_or(&[][..], |h| &h.engine);
    let outcome = heard.and_then(|h| h.outcome.as_deref());
    let asked = heard.filter(|h| h.scheduler.is_some()).map(|h| &h.asked);
    Views { scheduler, scheduler_source, engine, engine_source, engine_clock, asked, outcome, attempts }
}

/// The attempt whose first token the client received. The final message names it, and the scheduler relays
/// no other; without both it is the last attempt on the scheduler's engine, or the first when the request
/// was resumed later on.
fn attempt<'a>(
    attempts: &'a [EngineSpan],
    named: Option<&EngineTimeline>,
    scheduler: Option<&SchedulerTimeline>,
) -> Option<&'a EngineSpan> {
    if let Some(named) = named {
        return attempts
            .iter()
            .find(|s| s.timeline.engine == named.engine && s.timeline.received_ns == named.received_ns);
    }
    if let Some(relayed) = attempts.iter().find(|s| s.relayed) {
        return Some(relayed);
    }
    let engine = scheduler.map(|s| s.engine.as_str()).filter(|name| !name.is_empty());
    let mut there = attempts.iter().filter(|s| engine.is_none_or(|name| s.timeline.engine == name));
    if scheduler.is_some_and(|s| s.resumes > 0) { there.next() } else { there.next_back() }
}
