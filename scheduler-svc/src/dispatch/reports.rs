//! What engines say: taken apart here, given to the core as reports and to clients as tokens.

use std::{sync::Arc, time::Duration};

use firstlight_proto::{
    clock::Stamp,
    error::Failure,
    v1,
    v1::{RowEnd, engine_message::Message as Up, scheduler_message::Message as Down},
};
use tokio::sync::{mpsc, mpsc::error::TrySendError, watch};

use super::{Dispatch, End, Token, inflight::Place, seats::Seats};
use crate::{
    admission::{self, Blocks, EngineId, EngineLimits, Forward, Geometry, Report, Requeued, Row, Tokens},
    engines::{self, ClockView},
    metrics::{CancelledBy, count_engine},
    replay::EngineShape,
    shadow::{News, Ran},
};

/// One attachment, as its owner sees it.
pub struct Attached {
    /// Name of the engine.
    pub name: Arc<str>,
    /// Where its stamps are valid.
    pub domain: Option<Arc<v1::ClockDomain>>,
    /// Address that was dialled.
    pub address: Arc<str>,
    /// What the engine said of itself.
    pub hello: v1::Hello,
    /// Blocks free, as it last said.
    pub free_blocks: u32,
    /// Its clock.
    pub clock: watch::Receiver<ClockView>,
    /// Version of the limits it was told.
    limits_version: Option<u64>,
    /// The limits ask for `decode_first`, and its forwards have no decode to put first.
    spared_decode_first: bool,
    down: mpsc::UnboundedSender<Down>,
    /// Its sequences.
    pub seats: Seats,
}

impl Attached {
    /// Sends a message; a stream that is closed reports itself as lost.
    pub fn say(&self, message: Down) {
        let _ = self.down.send(message);
    }

    /// Tells it the limits that it has not been told, as far as it can follow them.
    pub fn tell_limits(&mut self, limits: &EngineLimits) {
        if self.limits_version == Some(limits.version) {
            return;
        }
        self.limits_version = Some(limits.version);
        let spared = limits.decode_first && self.hello.mixed;
        // Once: policy `adaptive` changes limits all the time.
        if spared && !self.spared_decode_first {
            tracing::warn!(engine = %self.name, "decode_first is left out for an engine with mixed forwards");
        }
        self.spared_decode_first = spared;
        self.say(Down::SetLimits(v1::SetLimits {
            max_batch_size: limits.max_batch_size,
            step_prefill_tokens: limits.step_prefill_tokens.0,
            decode_first: limits.decode_first && !spared,
        }));
    }
}

impl Dispatch {
    pub(super) fn attach(&mut self, attached: engines::Attached) {
        let engines::Attached { engine, address, hello, down, clock, again } = attached;
        let now = self.now();
        tracing::info!(
            engine = %hello.name, %address, model = %hello.model, backend = %hello.backend,
            kv_blocks = hello.kv_blocks, again, "engine attached"
        );
        count_engine("firstlight_link_attachments_total", &hello.name, 1);
        // There from the start: nobody sees a counter grow that is born at 1.
        count_engine("firstlight_link_losses_total", &hello.name, 0);
        let geometry = Geometry {
            context: Tokens(hello.context_length),
            block_size: Tokens(hello.block_size.max(1)),
            kv_blocks: Blocks(hello.kv_blocks),
            free_blocks: Blocks(hello.free_blocks),
            max_sequences: hello.max_sequences.max(1),
        };
        self.tell_shadow(|| News::Attached {
            at: now,
            engine,
            shape: EngineShape { geometry, mixed: hello.mixed },
        });
        let attached = Attached {
            name: hello.name.as_str().into(),
            domain: hello.domain.clone().map(Arc::new),
            address,
            free_blocks: hello.free_blocks,
            hello,
            clock,
            limits_version: None,
            spared_decode_first: false,
            down,
            seats: Seats::default(),
        };
        self.engines.insert(engine, attached);
        // Limits first: the first round must not run under the engine's own.
        self.tell_limits();
        let requeued = self.core.observe(now, Report::Attached { engine, geometry });
        self.requeue(&requeued, now);
        self.publish_served();
        self.plan(now);
    }

    pub(super) fn lose(&mut self, engine: EngineId, reason: &str) {
        let Some(attached) = self.engines.remove(&engine) else { return };
        let now = self.now();
        self.tell_shadow(|| News::Lost { at: now, engine });
        let requeued = self.core.observe(now, Report::Lost { engine });
        count_engine("firstlight_link_losses_total", &attached.name, 1);
        tracing::warn!(engine = %attached.name, reason, requeued = requeued.len(), "engine lost");
        self.requeue(&requeued, now);
        self.publish_served();
        self.plan(now);
    }

    /// It gets no more requests; those that it has not begun come back as rows of a later step.
    fn drains(&mut self, engine: EngineId, now: Stamp) {
        let Some(attached) = self.engines.get(&engine) else { return };
        tracing::info!(engine = %attached.name, "engine drains: it gets no more requests");
        self.tell_shadow(|| News::Draining { at: now, engine });
        self.core.observe(now, Report::Draining { engine });
        self.publish_served();
    }

    pub(super) fn said(&mut self, engine: EngineId, at: Stamp, message: Up, clock: ClockView) {
        // Stamps are when the link decoded; the core's time is the order in which it is told.
        let now = self.now();
        match message {
            Up::Step(step) => self.step(engine, at, step, clock, now),
            Up::Begun(begun) => {
                self.core.observe(now, Report::Begun { engine, seq: begun.seq });
            }
            Up::Rejected(rejected) => self.rejected(engine, &rejected, now),
            Up::Draining(_) => self.drains(engine, now),
            // The link keeps these to itself.
            Up::Hello(_) | Up::Probe(_) => {}
        }
        self.plan(now);
    }

    fn step(&mut self, engine: EngineId, at: Stamp, step: v1::Step, clock: ClockView, now: Stamp) {
        let Some(attached) = self.engines.get_mut(&engine) else { return };
        attached.free_blocks = step.free_blocks;
        let forward = forward(&step);
        if forward.is_some() {
            self.telemetry.forward(&attached.name, &step);
            if let Some(shadow) = &self.shadow {
                shadow.tell(News::Forward { engine, ran: Ran::from(&step) });
            }
        }
        for first in step.first_tokens {
            let place = attached.seats.get(first.handle);
            let Some(live) = place.and_then(|place| self.inflight.at(place)) else { continue };
            if live.record.first_token.is_none() {
                live.record.engine = first.timeline;
                live.record.engine_domain.clone_from(&attached.domain);
                live.record.engine_clock = clock;
            }
        }
        let mut rows = Vec::with_capacity(step.handles.len());
        let (mut firsts, mut ended) = (Vec::new(), Vec::new());
        let mut tokens = 0;
        for ((&handle, id), end) in step.handles.iter().zip(&step.token_ids).zip(&step.ends) {
            let end = RowEnd::try_from(*end).unwrap_or(RowEnd::Failed);
            let Some(place) = attached.seats.get(handle) else { continue };
            if end != RowEnd::None {
                attached.seats.leave(handle);
            }
            let produced = has_token(end);
            rows.push(Row { key: place.key, tokens: Tokens(produced.into()), end: left(end) });
            let Some(live) = self.inflight.at(place) else { continue };
            if produced {
                tokens += 1;
                live.generated.push(*id);
                match live.record.token(at) {
                    Some(gap) => self.itl.record(crate::metrics::in_seconds(gap)),
                    None => firsts.push(place),
                }
                if let Err(TrySendError::Full(_)) = live.tokens.try_send(Token { id: *id, at }) {
                    ended.push((place, RowEnd::None));
                }
            }
            if end != RowEnd::None {
                live.seat = None;
                ended.push((place, end));
            }
        }
        // Nobody's token waits while others' first ones are told of.
        firsts.into_iter().for_each(|place| self.tell_first_token(place));
        self.telemetry.metrics.output_tokens.increment(tokens);
        let report = admission::Step {
            engine,
            rows,
            free_blocks: Blocks(step.free_blocks),
            last_seq: step.last_seq,
            forward,
        };
        let requeued = self.core.observe(now, Report::Step(report));
        self.requeue(&requeued, now);
        for (place, end) in ended {
            self.end_row(place, end, now);
        }
    }

    fn tell_first_token(&mut self, place: Place) {
        let Some(live) = self.inflight.at(place) else { return };
        self.telemetry.first_token(&live.record);
        if let (Some(shadow), Some((dispatch, back))) = (&self.shadow, live.record.hand_overs()) {
            shadow.tell(News::FirstToken { dispatch, back });
        }
    }

    /// A row has ended (or, with [`RowEnd::None`], its client does not read).
    fn end_row(&mut self, place: Place, end: RowEnd, now: Stamp) {
        let end = match end {
            RowEnd::Preempted => return,
            RowEnd::None => {
                let reason = format!("the stream is {} tokens behind: nobody reads it", self.stream_buffer);
                let failure = Failure::Full { reason, retry_after: Duration::from_secs(1) };
                End::Failed(failure, Some(CancelledBy::Overflow))
            }
            RowEnd::Length => End::Finished(v1::FinishReason::Length),
            RowEnd::Eos => End::Finished(v1::FinishReason::Eos),
            RowEnd::StopToken => End::Finished(v1::FinishReason::StopToken),
            RowEnd::Cancelled => {
                let reason = "the engine gave the request up".into();
                End::Failed(Failure::Unavailable { reason, retry_after: Duration::from_secs(1) }, None)
            }
            RowEnd::Failed => {
                let id = self.inflight.get(place.key).map(|l| l.ask.id.to_string()).unwrap_or_default();
                tracing::error!(request_id = %id, "the engine failed on this request; see its log");
                End::Failed(Failure::Bug { id }, None)
            }
        };
        self.withdraw(now, place.key, end);
    }

    fn rejected(&mut self, engine: EngineId, rejected: &v1::Rejected, now: Stamp) {
        let Some(attached) = self.engines.get_mut(&engine) else { return };
        let Some(place) = attached.seats.leave(rejected.handle) else { return };
        self.core.observe(now, Report::Rejected { key: place.key });
        let Some(live) = self.inflight.remove(place.key) else { return };
        tracing::warn!(request_id = %live.ask.id, kind = %rejected.kind, reason = %rejected.reason, "rejected by the engine");
        let failure = match rejected.kind.as_str() {
            "bug" => Failure::Bug { id: live.ask.id.to_string() },
            _ => Failure::Invalid { field: "request", reason: rejected.reason.clone() },
        };
        self.conclude(live, End::Failed(failure, None), now);
    }

    /// Requests that are pending again.
    fn requeue(&mut self, requeued: &[Requeued], now: Stamp) {
        for requeued in requeued {
            self.telemetry.metrics.attempt_died(requeued.why);
            let Some(live) = self.inflight.get(requeued.key) else { continue };
            live.seat = None;
            live.record.requeue(requeued, now);
        }
    }
}

fn has_token(end: RowEnd) -> bool {
    matches!(end, RowEnd::None | RowEnd::Length | RowEnd::Eos | RowEnd::StopToken)
}

fn left(end: RowEnd) -> Option<admission::End> {
    match end {
        RowEnd::None => None,
        RowEnd::Preempted => Some(admission::End::Preempted),
        _ => Some(admission::End::Finished),
    }
}

fn forward(step: &v1::Step) -> Option<Forward> {
    (step.kind() != v1::ForwardKind::Unspecified).then(|| Forward {
        start: Stamp::from_ns(step.start_ns),
        end: Stamp::from_ns(step.end_ns),
        prefill_tokens: Tokens(step.prefill_tokens),
        decode_rows: step.rows.saturating_sub(step.prefill_rows),
    })
}
