//! Why a recent request waited: its causes in order of time, and which requests held the limit that bound it.
//!
//! The ledger keeps sums of waiting, not when which cause held. That is put together on demand from the history of
//! charges and attempts, which is bounded: what is older is left out, and the explanation says so.

use firstlight_proto::clock::Stamp;

use super::{
    Admission,
    book::{Place, Slot},
    cause::Cause,
    history::{Attempt, Charge, Grant, Recent, Whose},
    report::{EngineId, Loss},
    request::Key,
};

/// Attempts kept: requests that were admitted or left the queue lately.
pub(super) const ATTEMPTS_KEPT: usize = 8_192;

/// Why a request waited.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explanation {
    /// Where it is now.
    pub state: RequestState,
    /// Its waiting, in order of time; periods touch unless an attempt was lost between them.
    pub periods: Vec<Period>,
    /// Attempts that died, in order.
    pub lost: Vec<LostAttempt>,
    /// The part of the wait before it reached the head of its lane, ns.
    pub behind: i64,
    /// Nothing of its wait is too old to be remembered.
    pub complete: bool,
}

impl Explanation {
    /// Sum of the periods, ns.
    pub fn queue_wait(&self) -> i64 {
        self.periods.iter().map(|period| period.to.since(period.from)).sum()
    }
}

/// Where a request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestState {
    /// In the queue.
    Pending,
    /// Admitted and not finished.
    Active,
    /// Admitted, and finished since.
    Finished,
    /// Left the queue without having been admitted.
    Withdrawn,
}

/// One stretch of waiting under one cause.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Period {
    /// What was charged.
    pub cause: Cause,
    /// Its start.
    pub from: Stamp,
    /// Its end.
    pub to: Stamp,
    /// The limit's value; 0 when the cause has none.
    pub limit: u64,
    /// Who held the limit in that stretch, largest share first (at most [`Holder::MOST`]).
    pub holders: Vec<Holder>,
}

/// A request that held a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holder {
    /// Which.
    pub key: Key,
    /// How much of it, in the limit's unit: requests, blocks or tokens.
    pub amount: u64,
}

impl Holder {
    /// Most holders listed for a period.
    pub const MOST: usize = 64;
}

/// An attempt that died.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LostAttempt {
    /// Why.
    pub why: Loss,
    /// When it was admitted.
    pub admitted: Stamp,
    /// When it was queued anew.
    pub requeued: Stamp,
}

impl Admission {
    /// Why a request waited; `None` when it is not remembered. Scans the history: for people, not per request.
    pub fn explain(&self, now: Stamp, key: Key) -> Option<Explanation> {
        let mut attempts: Vec<Attempt> = self.attempts.iter().filter(|a| a.key == key).copied().collect();
        let pending =
            self.book.find(key).filter(|slot| matches!(self.book.get(*slot).place, Place::Pending(_)));
        attempts.extend(pending.map(|slot| self.attempt(slot, now, None)));
        let last = attempts.last()?;
        let state = match (pending, last.grant, last.ended) {
            (Some(_), ..) => RequestState::Pending,
            (None, None, _) => RequestState::Withdrawn,
            (None, Some(_), None) => RequestState::Active,
            (None, Some(_), Some(_)) => RequestState::Finished,
        };
        let periods: Vec<_> = attempts.iter().flat_map(|attempt| self.periods(attempt)).collect();
        let lost = attempts
            .iter()
            .filter_map(|a| Some(LostAttempt { why: a.lost?, admitted: a.left, requeued: a.ended? }))
            .collect();
        let waited: i64 = attempts.iter().map(|attempt| attempt.left.since(attempt.queued)).sum();
        let explained: i64 = periods.iter().map(|period| period.to.since(period.from)).sum();
        Some(Explanation { state, periods, lost, behind: last.behind, complete: waited == explained })
    }

    /// Notes that a request leaves the queue; the number of the note.
    pub(super) fn record(&mut self, slot: Slot, now: Stamp, grant: Option<Grant>) -> u64 {
        let attempt = self.attempt(slot, now, grant);
        self.attempts.push(attempt)
    }

    /// Notes that an attempt ended.
    pub(super) fn close_attempt(&mut self, number: u64, now: Stamp, lost: Option<Loss>) {
        if let Some(attempt) = self.attempts.get_mut(number) {
            attempt.ended = Some(now);
            attempt.lost = lost;
        }
    }

    fn attempt(&self, slot: Slot, now: Stamp, grant: Option<Grant>) -> Attempt {
        let (entry, pending) = (self.book.get(slot), self.book.pending(slot));
        Attempt {
            key: self.book.key(slot),
            arrival: entry.arrival,
            lane: self.waiting.lanes.get(pending.lane).serial,
            queued: pending.queued,
            joined: pending.joined,
            judged: pending.judged,
            behind: entry.behind + pending.headed.unwrap_or(now).since(pending.queued),
            left: now,
            grant,
            ended: None,
            lost: None,
        }
    }

    /// The pending period of an attempt, cut where what it was charged changed.
    fn periods(&self, attempt: &Attempt) -> Vec<Period> {
        let course = course(&self.waiting.charges, attempt);
        let ends = course.iter().skip(1).map(|charge| charge.since).chain([attempt.left]);
        let mut periods: Vec<Period> = Vec::new();
        for (charge, to) in course.iter().zip(ends) {
            let (Some(cause), from) = (charge.cause, charge.since) else { continue };
            if to <= from {
                continue;
            }
            let limit = charge.limit;
            match periods.last_mut() {
                Some(last) if last.cause == cause && last.limit == limit && last.to == from => last.to = to,
                _ => periods.push(Period { cause, from, to, limit, holders: Vec::new() }),
            }
        }
        for period in &mut periods {
            let short = course.iter().rfind(|charge| charge.since <= period.from);
            period.holders = self.holders(attempt, period, short.and_then(|charge| charge.engine));
        }
        periods
    }

    /// Who held the limit that a request was charged; `short` is the engine that was short of blocks.
    fn holders(&self, of: &Attempt, period: &Period, short: Option<EngineId>) -> Vec<Holder> {
        let admitted = |a: &&Attempt| a.grant.is_some() && a.key != of.key;
        let in_rounds = |a: &&Attempt| (period.from..period.to).contains(&a.left);
        let overlaps = |a: &&Attempt| a.left < period.to && a.ended.is_none_or(|ended| ended > period.from);
        let granted = || self.attempts.iter().filter(admitted);
        let share = |a: &Attempt, amount: u64| Holder { key: a.key, amount };
        let grant = |a: &Attempt| a.grant.expect("only admitted attempts are asked");
        let mut holders: Vec<Holder> = match period.cause {
            Cause::MaxActive => granted().filter(overlaps).map(|a| share(a, 1)).collect(),
            Cause::KvBlocks => granted()
                .filter(|a| short.is_none_or(|engine| grant(a).engine == engine))
                .filter(overlaps)
                .map(|a| share(a, grant(a).blocks.0.into()))
                .collect(),
            Cause::TokenBudget => {
                granted().filter(in_rounds).map(|a| share(a, grant(a).tokens.0.into())).collect()
            }
            Cause::BatchSize => granted().filter(in_rounds).map(|a| share(a, 1)).collect(),
            Cause::FairShare => granted()
                .filter(in_rounds)
                .filter(|a| a.lane != of.lane && a.arrival > of.arrival)
                .map(|a| share(a, 1))
                .collect(),
            Cause::EngineBusy => {
                let latest = granted().filter(|a| a.left <= period.from).map(|a| a.left).max();
                granted().filter(|a| Some(a.left) == latest).map(|a| share(a, 1)).collect()
            }
            Cause::NoEngine => Vec::new(),
        };
        holders.sort_by_key(|holder| std::cmp::Reverse(holder.amount));
        holders.truncate(Holder::MOST);
        holders
    }
}

/// What an attempt was charged, in order: as all newcomers until it was judged, then as its lane, unless it
/// was charged alone.
fn course(charges: &Recent<Charge>, attempt: &Attempt) -> Vec<Charge> {
    let judged = attempt.judged.unwrap_or(attempt.left);
    let (mut newcomers, mut lane, mut own) = (None, None, None);
    let mut course: Vec<Charge> = Vec::new();
    let mut note = |since: Stamp, charge: Option<Charge>| {
        course.extend(charge.map(|charge| Charge { since: since.max(attempt.joined), ..charge }));
    };
    let mut follows_lane = false;
    for charge in charges.iter().take_while(|charge| charge.since < attempt.left) {
        if !follows_lane && charge.since > judged {
            note(judged, own.or(lane));
            follows_lane = true;
        }
        match charge.whose {
            Whose::Newcomers => newcomers = Some(*charge),
            Whose::Lane(serial) if serial == attempt.lane => lane = Some(*charge),
            Whose::Request(key) if key == attempt.key => own = charge.cause.map(|_| *charge),
            _ => continue,
        }
        note(charge.since, if charge.since < judged { newcomers } else { own.or(lane) });
    }
    if !follows_lane && judged < attempt.left {
        note(judged, own.or(lane));
    }
    course
}
