//! What comes and goes between forwards: attachments, batches, cancels.

use std::time::Duration;

use firstlight_proto::{
    clock::Stamp,
    error::{Failure, Kind},
    v1::{self, engine_message::Message},
};
use firstlight_sim::planner::{BatchId, End, Limits, SeqId};
use tonic::Status;

use super::{
    AttachmentKey, Outgoing,
    attachment::Attachment,
    command::Arrival,
    run::{Phase, StepLoop},
    running::Running,
};

/// Sequences one attachment may have in the engine, inbox included: far above any sensible credit, and a bound on
/// what a scheduler gone mad can make us hold.
const MAX_HANDLES: usize = 65_536;

impl StepLoop {
    pub(super) fn attach(&mut self, key: AttachmentKey, outgoing: Outgoing, limits: Option<Limits>) {
        if let Some(limits) = limits {
            self.planner.set_limits(limits);
        }
        let hello = v1::Hello {
            free_blocks: self.planner.free_to_promise() as u32,
            limits: Some(to_wire(self.planner.limits())),
            ..self.config.hello.clone()
        };
        if outgoing.send(self.config.clock.now(), Message::Hello(hello)).is_ok() {
            self.attachments.insert(key, Attachment::new(outgoing));
            self.metrics.counts.attachments_total += 1;
            if self.phase == Phase::Draining {
                self.tell_draining(key);
            }
        }
        self.report_counts();
    }

    pub(super) fn admit(&mut self, key: AttachmentKey, seq: u64, received: Stamp, sequences: Vec<Arrival>) {
        let Some(attachment) = self.attachments.get_mut(&key) else { return };
        let now = self.config.clock.now();
        let id = BatchId(self.next_batch);
        self.next_batch += 1;
        let mut batch = Vec::new();
        let mut rejected = Vec::new();
        for sequence in sequences {
            match sequence {
                Ok((admission, _)) if attachment.handles.len() >= MAX_HANDLES => {
                    let reason = format!("{MAX_HANDLES} sequences of this attachment are in the engine");
                    let retry_after = Duration::from_millis(100);
                    rejected.push((admission.handle, Failure::Full { reason, retry_after }));
                }
                Ok((admission, _)) if attachment.handles.contains_key(&admission.handle) => {
                    let reason = format!("{} is in flight in this attachment already", admission.handle);
                    rejected.push((admission.handle, Failure::Invalid { field: "handle", reason }));
                }
                Ok((admission, new)) => {
                    let handle = admission.handle;
                    let running = Running::new(key, id, received, &self.decode_first, admission, &new);
                    let waited = running.waited(now, &self.decode_first);
                    self.config.blocked.update(|blocked| blocked.arrived(now.ns(), waited));
                    let slot = SeqId(self.running.insert(running) as u32);
                    attachment.handles.insert(handle, slot);
                    batch.push((slot, new));
                }
                Err(rejection) => rejected.push(rejection),
            }
        }
        for (handle, failure) in rejected {
            self.reject(key, handle, &failure);
        }
        if let Some(attachment) = self.attachments.get_mut(&key) {
            attachment.batch_arrived(id, seq, batch.len());
        }
        match self.phase {
            _ if batch.is_empty() => self.send_begun(key),
            Phase::Draining => self.hand_back(),
            Phase::Serving | Phase::Stopped => self.planner.admit(id, batch),
        }
    }

    fn reject(&mut self, key: AttachmentKey, handle: u32, failure: &Failure) {
        self.metrics.rejected(failure.kind());
        let rejected =
            v1::Rejected { handle, kind: failure.kind().label().to_owned(), reason: failure.to_string() };
        self.send(key, Message::Rejected(rejected));
    }

    pub(super) fn cancel(&mut self, key: AttachmentKey, handles: &[u32]) {
        let mut ended = false;
        for handle in handles {
            // Looked up one by one: a handle that is named twice has ended by the second time.
            let attachment = self.attachments.get(&key);
            let Some(&id) = attachment.and_then(|attachment| attachment.handles.get(handle)) else {
                continue;
            };
            self.planner.cancel(id);
            self.metrics.counts.cancels += 1;
            self.finish(id, None, End::Cancelled);
            ended = true;
        }
        if ended {
            self.publish(&v1::Step::default());
        }
    }

    /// Aborts the attachment's sequences and frees their blocks; the stream ends with `status`.
    pub(super) fn detach(&mut self, key: AttachmentKey, status: Option<Status>) {
        let Some(attachment) = self.attachments.remove(&key) else { return };
        tracing::info!(attachment = key.0, aborted = attachment.handles.len(), "detached");
        for &id in attachment.handles.values() {
            self.planner.cancel(id);
            self.metrics.counts.cancels += 1;
            let running = self.forget(id);
            self.tell_end(running, Kind::Cancelled.label());
        }
        if let Some(status) = status {
            attachment.outgoing.end(status);
        }
        self.report_counts();
    }
}

fn to_wire(limits: Limits) -> v1::SetLimits {
    v1::SetLimits {
        max_batch_size: limits.max_batch_size as u32,
        step_prefill_tokens: limits.step_prefill_tokens as u32,
        decode_first: limits.decode_first,
    }
}
