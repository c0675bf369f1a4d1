//! Ten stamps per request, taken by three processes on up to three clocks, joined by request id into
//! one chain of segments that sums to what the client saw. Pure: no sockets, no clock reads.
//!
//! - [`chain`]: the chain of one request
//! - [`sources`]: which span or message each process's stamps are taken from
//! - [`heard`]: requests of other clients, as far as the scheduler tells of them

pub mod chain;
pub mod heard;
pub mod sources;

pub use chain::{CAUSES, Chain, LOST, Measured, PARTS, part_names};
pub use sources::{Source, Views};

use firstlight_proto::clock::Stamp;

use crate::{
    observe::{ClockMap, SpanStore},
    target::Record,
};

/// A request and what became of its time.
#[derive(Clone, Debug)]
pub struct Joined<'a> {
    /// The client's side.
    pub record: &'a Record,
    /// The services' side.
    pub views: Views<'a>,
    /// Its chain; `None` when it never got a first token.
    pub chain: Option<Chain>,
    /// Time in the scheduler's pending queue of a request without a first token, ns, when it is known.
    pub censored_queue_wait_ns: Option<i64>,
}

/// Joins all records of a run with what the services told. Every joined request first tightens what is
/// known of the scheduler's clock: nothing is received before it is sent.
pub fn join<'a>(records: &'a [Record], spans: &'a SpanStore, clocks: &ClockMap) -> Vec<Joined<'a>> {
    let views: Vec<_> = records.iter().map(|r| sources::views(r, spans.get(&r.id))).collect();
    let mut clocks = clocks.clone();
    for (record, view) in records.iter().zip(&views) {
        let stamps = || {
            let scheduler = view.scheduler?;
            let there = (record.sent?, Stamp::from_wire(scheduler.received_ns)?);
            let back = (Stamp::from_wire(scheduler.first_token_ns)?, record.first_token()?);
            Some((there, back))
        };
        if let Some((there, back)) = stamps() {
            clocks.tighten_scheduler(there, back);
        }
    }
    let joined = records.iter().zip(views).map(|(record, view)| Joined {
        record,
        views: view,
        chain: chain::chain(record, &view, &clocks),
        censored_queue_wait_ns: view.scheduler.filter(|_| record.first_token().is_none()).map(|s| {
            let still_pending = s.admit_ns == 0 && s.queued_ns != 0 && s.queue_wait_ns == 0;
            if still_pending { (s.finished_ns - s.queued_ns).max(0) } else { s.queue_wait_ns }
        }),
    });
    joined.collect()
}

#[cfg(test)]
mod tests;
