//! What the loop tells: `Begun`, rows, first tokens, ends, one `Step` after each forward, spans and gauges.

use std::{sync::Arc, time::Duration};

use firstlight_proto::{
    clock::Stamp,
    error::Failure,
    v1::{self, SpanEvent, engine_message::Message},
};
use firstlight_sim::{
    cost::Load,
    planner::{End, ForwardKind, ForwardPlan, Outcome, SeqId},
};
use tonic::Status;

use super::{
    AttachmentKey,
    run::StepLoop,
    running::{Ended, Running},
};

impl StepLoop {
    /// Stamp 6 of the sequences whose first row is in `plan`, and `Begun` of the batches that left the inbox.
    pub(super) fn begin(&mut self, plan: &ForwardPlan, start: Stamp) {
        for row in plan.rows.iter().filter(|row| row.begins) {
            let cached = self.planner.sequence(row.id).map_or(0, |seq| seq.cached());
            self.running[row.id.0 as usize].begin(start, cached, &self.decode_first);
            self.config.blocked.update(|blocked| blocked.left(start.ns()));
        }
        if plan.begun.is_empty() {
            return;
        }
        let keys: Vec<AttachmentKey> = self.attachments.keys().copied().collect();
        for key in keys {
            if let Some(attachment) = self.attachments.get_mut(&key) {
                plan.begun.iter().for_each(|&id| attachment.batch_begun(id, start));
            }
            self.send_begun(key);
        }
    }

    /// Sends the `Begun` that are due to an attachment.
    pub(super) fn send_begun(&mut self, key: AttachmentKey) {
        let now = self.config.clock.now();
        let due = self.attachments.get_mut(&key).map(|attachment| attachment.take_begun(now));
        for begun in due.unwrap_or_default() {
            self.send(key, Message::Begun(begun));
        }
    }

    pub(super) fn take_outcome(&mut self, outcome: &Outcome, at: Stamp) {
        if outcome.token.is_some() {
            let running = &mut self.running[outcome.id.0 as usize];
            running.token(at);
            if outcome.first {
                self.first_token(outcome.id);
            }
        }
        match outcome.end {
            Some(end) => self.finish(outcome.id, outcome.token, end),
            None => {
                let running = &self.running[outcome.id.0 as usize];
                if let Some(attachment) = self.attachments.get_mut(&running.attachment) {
                    attachment.row(running.handle, outcome.token, None);
                }
            }
        }
    }

    /// Stamp 7: every segment of the sequence is observed at this one event.
    fn first_token(&mut self, id: SeqId) {
        if !self.config.tells {
            return;
        }
        let running = &self.running[id.0 as usize];
        if let Some(segments) = running.segments() {
            self.metrics.first_token(segments.wait, segments.own, segments.between);
        }
        let timeline = running.timeline();
        if let Some(attachment) = self.attachments.get_mut(&running.attachment) {
            attachment.first_token(running.handle, timeline.clone());
        }
        if self.config.spans.wants(SpanEvent::FirstToken.into()) {
            let span = Arc::new(running.span(SpanEvent::FirstToken, "", timeline));
            self.metrics.counts.spans_dropped += self.config.spans.publish(span);
        }
    }

    /// The last row of a sequence that the planner has forgotten.
    pub(super) fn finish(&mut self, id: SeqId, token: Option<u32>, end: End) {
        let running = self.forget(id);
        let key = running.attachment;
        self.metrics.finished(end);
        if let Some(attachment) = self.attachments.get_mut(&key) {
            attachment.handles.remove(&running.handle);
            attachment.lost_from_batch(running.batch);
            attachment.row(running.handle, token, Some(end));
        }
        self.tell_end(running, end.label());
        // A batch of which nothing is left to begin gives its credit back.
        self.send_begun(key);
    }

    /// Takes out a sequence that the planner has forgotten.
    pub(super) fn forget(&mut self, id: SeqId) -> Running {
        let running = self.running.remove(id.0 as usize);
        if !running.has_begun() {
            let now = self.config.clock.now().ns();
            self.config.blocked.update(|blocked| blocked.left(now));
        }
        running
    }

    pub(super) fn tell_end(&mut self, running: Running, outcome: &'static str) {
        if self.config.spans.wants(SpanEvent::Finished.into()) {
            self.metrics.counts.spans_dropped +=
                self.config.spans.publish(Arc::new(Ended { running, outcome }));
        }
    }

    pub(super) fn report(&mut self, plan: &ForwardPlan, start: Stamp, end: Stamp) {
        let (rows, load) = (plan.rows.len(), Load::from(plan));
        let bucket = match plan.kind {
            ForwardKind::Decode => self.backend.decode_bucket(rows),
            ForwardKind::Prefill | ForwardKind::Mixed => rows,
        };
        self.metrics.forward(plan, bucket, end.since(start));
        let on_device = self.backend.device_forwards();
        self.metrics.device(on_device);
        let device_ns = on_device.iter().map(|forward| forward.ns as i64).sum();
        self.publish(&v1::Step {
            kind: forward_kind(plan.kind).into(),
            start_ns: start.ns(),
            end_ns: end.ns(),
            device_ns,
            rows: rows as u32,
            bucket: bucket as u32,
            prefill_rows: load.prefill_rows as u32,
            prefill_tokens: load.prefill_tokens as u32,
            attended: load.attended as u64,
            kv_tokens: plan.kv_tokens() as u64,
            cached_tokens: plan.cached_tokens as u32,
            ..v1::Step::default()
        });
    }

    /// Sends every attachment its rows, with the counts as they are now.
    pub(super) fn publish(&mut self, step: &v1::Step) {
        let report = v1::Step {
            free_blocks: self.planner.free_to_promise() as u32,
            active: self.planner.active() as u32,
            prefilling: self.planner.prefilling() as u32,
            ..step.clone()
        };
        // First, so that whoever has read the message can scrape what it says.
        self.report_counts();
        let made = self.config.clock.now();
        self.attachments.values_mut().for_each(|attachment| attachment.publish(made, &report));
    }

    pub(super) fn send(&mut self, key: AttachmentKey, message: Message) {
        let made = self.config.clock.now();
        if let Some(attachment) = self.attachments.get_mut(&key) {
            attachment.send(made, message);
        }
    }

    /// Detaches the attachments that took no more messages. Their sequences may be rows of a plan or a batch on its
    /// way to the planner, so sending only notes them, and this is called where the loop holds neither.
    pub(super) fn detach_lost(&mut self) {
        let lost = self.attachments.iter().filter(|(_, attachment)| attachment.lost);
        for key in lost.map(|(&key, _)| key).collect::<Vec<_>>() {
            self.give_up(key);
        }
    }

    fn give_up(&mut self, key: AttachmentKey) {
        let gone = self.attachments.get(&key).is_some_and(|attachment| attachment.outgoing.is_closed());
        let status = (!gone).then(slow_reader);
        self.detach(key, status);
    }

    /// Ends attachments that have taken nothing for `stall_limit`.
    pub(super) fn end_stalled(&mut self) {
        let now = self.config.clock.now();
        let mut stalled = Vec::new();
        for (&key, attachment) in &mut self.attachments {
            if !attachment.outgoing.is_congested() {
                attachment.stalled_since = None;
                continue;
            }
            let since = *attachment.stalled_since.get_or_insert(now);
            if now.saturating_since(since) >= self.config.stall_limit {
                stalled.push(key);
            }
        }
        for key in stalled {
            self.give_up(key);
        }
    }

    /// Shows the counts as they are now to whoever scrapes.
    pub(super) fn report_counts(&mut self) {
        let (kv, counts) = (self.planner.kv(), &mut self.metrics.counts);
        counts.kv_blocks_free = kv.free() as u64;
        counts.kv_blocks_cached = kv.cached() as u64;
        counts.active = self.planner.active() as u64;
        counts.prefilling = self.planner.prefilling() as u64;
        counts.inbox = self.planner.inbox() as u64;
        counts.attachments = self.attachments.len() as u64;
        self.config.counts.set(counts);
    }
}

fn forward_kind(kind: ForwardKind) -> v1::ForwardKind {
    match kind {
        ForwardKind::Prefill => v1::ForwardKind::Prefill,
        ForwardKind::Decode => v1::ForwardKind::Decode,
        ForwardKind::Mixed => v1::ForwardKind::Mixed,
    }
}

fn slow_reader() -> Status {
    let reason = "the scheduler does not read its stream; its buffer is full".to_owned();
    Failure::Full { reason, retry_after: Duration::from_millis(100) }.into()
}
