//! Requests coming in, and being taken back: by their client, their deadline, or an unread stream.

use firstlight_proto::{clock::Stamp, error::Failure, v1, v1::scheduler_message::Message as Down};
use tokio::sync::{mpsc, oneshot};

use super::{
    Dispatch, End, Ticket, Withdrawal,
    client::stopping,
    inflight::{InFlight, Live},
};
use crate::{
    admission::{Key, Request, Tokens, TurnedAway, Withdrawn},
    metrics::CancelledBy,
    record::{Record, wait_in_words},
    request::Ask,
    shadow::News,
};

impl Dispatch {
    pub(super) fn check_room(&mut self) -> Result<(), Failure> {
        let now = self.now();
        self.core.check_room(now).map_err(Failure::from)
    }

    pub(super) fn offer(&mut self, ask: Ask, reply: oneshot::Sender<Result<Ticket, Failure>>) {
        let now = self.now();
        let answer = self.queue(now, ask);
        let queued = answer.is_ok();
        // A client that is gone drops its ticket, which takes the request back.
        drop(reply.send(answer));
        if queued {
            if let Some(hold) = self.hold {
                self.hold_until.get_or_insert(now + hold);
            }
            self.plan(now);
        }
    }

    fn queue(&mut self, now: Stamp, ask: Ask) -> Result<Ticket, Failure> {
        if self.inflight.key_of(&ask.id).is_some() {
            let reason =
                format!("{:?} is in flight already; ids are unique among requests in flight", ask.id);
            return Err(Failure::Invalid { field: "request_id", reason });
        }
        if ask.deadline.is_some_and(|deadline| deadline <= now) {
            return Err(Failure::Deadline("it had passed before the request was queued".into()));
        }
        let request = Request {
            prompt: Tokens(ask.prompt.len() as u32),
            max_new: Tokens(ask.max_new),
            class: self.budgets.class(&ask.class),
            tenant: ask.tenant,
            deadline: ask.deadline,
        };
        let queued = self.core.offer(now, request)?;
        self.tell_shadow(|| News::Queued {
            at: now,
            received: ask.received,
            key: queued.key,
            request,
            prompt: (!ask.no_prefix_cache).then(|| ask.prompt.clone()),
        });
        let (tokens, receiver) = mpsc::channel(self.stream_buffer);
        let (ending, end) = oneshot::channel();
        self.telemetry.metrics.queued.increment(1);
        self.telemetry.tenants.of(ask.tenant).queued.increment(1);
        self.telemetry.metrics.prompt_tokens.increment(ask.prompt.len() as u64);
        let record = Record::new(&ask, now);
        self.inflight.insert(Live::new(queued.key, ask, record, tokens, ending));
        Ok(Ticket { queued: now, tokens: receiver, ending: end, claim: self.handle.claim(queued.key) })
    }

    /// A stream needs no more tokens.
    pub(super) fn take_back(&mut self, key: Key, why: Withdrawal) {
        let end = match why {
            Withdrawal::StopString => End::Finished(v1::FinishReason::StopString),
            Withdrawal::HungUp => End::Failed(hung_up(), Some(CancelledBy::Client)),
        };
        let now = self.now();
        self.withdraw(now, key, end);
        self.plan(now);
    }

    /// Ends requests whose deadline has passed.
    pub(super) fn expire(&mut self, now: Stamp) {
        while let Some(key) = self.inflight.next_expired(now) {
            let waited = self.core.waited(now, key);
            let state = match (waited, self.inflight.get(key)) {
                (Some(waited), _) => format!("pending after {}", wait_in_words(&waited)),
                (None, Some(live)) => format!(
                    "{} of {} tokens generated; queue wait {}",
                    live.generated.len(),
                    live.ask.max_new,
                    wait_in_words(&live.record.waited)
                ),
                (None, None) => String::new(),
            };
            self.withdraw(now, key, End::Failed(Failure::Deadline(state), Some(CancelledBy::Deadline)));
        }
    }

    /// Ends a request wherever it is, and frees what it holds.
    pub(super) fn withdraw(&mut self, now: Stamp, key: Key, end: End) {
        let Some(mut live) = self.inflight.remove(key) else { return };
        match self.core.withdraw(now, key) {
            Withdrawn::Pending(waited) if live.record.first_token.is_none() => live.record.waited = waited,
            Withdrawn::Active(engine) => {
                if let (Some(attached), Some((_, handle))) = (self.engines.get(&engine), live.seat) {
                    attached.say(Down::Cancel(v1::Cancel { handles: vec![handle] }));
                }
            }
            Withdrawn::Pending(_) | Withdrawn::Unknown => {}
        }
        self.conclude(live, end, now);
    }

    /// Ends a request that has left the core, or will with its row.
    pub(super) fn conclude(&mut self, live: Live, end: End, now: Stamp) {
        self.recent.remember(live.key, &live.ask.id, &end);
        self.tell_shadow(|| News::Ended {
            at: now,
            key: live.key,
            tokens: Tokens(live.generated.len() as u32),
            finished: matches!(end, End::Finished(_)),
        });
        if let Err(ending) = live.end(end, now) {
            // The client went away without a word from its stream: the ending is told here.
            let by = match ending.end {
                End::Failed(_, by) => by,
                End::Finished(_) => None,
            };
            self.telemetry.failed(ending.record, &hung_up(), by.or(Some(CancelledBy::Client)));
        }
    }

    /// The core found that a pending request cannot be served after all.
    pub(super) fn turn_away(&mut self, TurnedAway { key, why, waited }: TurnedAway, now: Stamp) {
        let Some(mut live) = self.inflight.remove(key) else { return };
        if live.record.first_token.is_none() {
            live.record.waited = waited;
        }
        let failure = match Failure::from(why) {
            Failure::Deadline(text) => {
                Failure::Deadline(format!("{text}; pending after {}", wait_in_words(&waited)))
            }
            other => other,
        };
        let by = matches!(failure, Failure::Deadline(_)).then_some(CancelledBy::Deadline);
        self.conclude(live, End::Failed(failure, by), now);
    }

    /// The service stops: nothing is dropped without a reply.
    pub(super) fn fail_all(&mut self) {
        let now = self.now();
        let keys = InFlight::keys(&self.inflight);
        for key in keys {
            self.withdraw(now, key, End::Failed(stopping(), Some(CancelledBy::Shutdown)));
        }
    }
}

fn hung_up() -> Failure {
    Failure::Cancelled("the client hung up".into())
}
