//! The way back to a scheduler: answers to probes first, then what the step loop publishes; each message is stamped
//! as the transport takes it.

use std::{
    pin::Pin,
    task::{Context, Poll, ready},
};

use firstlight_proto::{
    clock::Stamp,
    v1::{EngineMessage, ProbeClockRequest, engine_message::Message},
};
use futures_util::Stream;
use tokio::sync::mpsc;
use tonic::Status;

use super::telemetry::Identity;
use crate::step::{AttachmentKey, Command, StepHandle, outgoing::Incoming};

/// Probes that may wait to be answered; a scheduler that sends more than it reads loses the rest.
pub const PROBES: usize = 64;

/// The response stream of one attachment. Dropping it detaches.
#[derive(Debug)]
pub struct AttachStream {
    /// Inside this process.
    pub key: AttachmentKey,
    /// The scheduler's id on the wire, once known.
    pub attachment: std::sync::Arc<std::sync::OnceLock<u64>>,
    /// Who answers probes.
    pub identity: Identity,
    /// Probes, with the stamp at which each was decoded.
    pub probes: mpsc::Receiver<(Stamp, ProbeClockRequest)>,
    /// What the step loop publishes.
    pub incoming: Incoming,
    /// Told when the stream goes.
    pub step: StepHandle,
    /// The final status was sent.
    pub ended: bool,
}

impl AttachStream {
    fn message(&self, message: Message) -> EngineMessage {
        let attachment = self.attachment.get().copied().unwrap_or_default();
        EngineMessage { attachment, message: Some(message) }
    }
}

impl Stream for AttachStream {
    type Item = Result<EngineMessage, Status>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.ended {
            return Poll::Ready(None);
        }
        if let Poll::Ready(Some((decoded, probe))) = self.probes.poll_recv(cx) {
            let answer = self.identity.answer(probe, decoded.ns());
            return Poll::Ready(Some(Ok(self.message(Message::Probe(answer)))));
        }
        match ready!(self.incoming.messages.poll_recv(cx)) {
            Some((_, mut message)) => {
                if let Message::Step(step) = &mut message {
                    step.sent_ns = self.identity.clock.now().ns();
                }
                Poll::Ready(Some(Ok(self.message(message))))
            }
            None => {
                self.ended = true;
                Poll::Ready(self.incoming.status.get().cloned().map(Err))
            }
        }
    }
}

impl Drop for AttachStream {
    fn drop(&mut self) {
        self.step.send(Command::Detach { key: self.key, status: None });
    }
}
