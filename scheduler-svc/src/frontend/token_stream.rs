//! Tokens → the messages of one response: detokenized as they come, stop strings found, the timeline last.
//! This runs on the connection's own task, so that text costs the dispatch task nothing.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use firstlight_proto::{error::Failure, v1};
use futures_util::Stream;
use tokio::time::Sleep;
use tokio_util::task::task_tracker::TaskTrackerToken;
use tonic::Status;

use crate::{
    dispatch::{End, Ending, Ticket, Token, Withdrawal},
    metrics::CancelledBy,
    telemetry::Telemetry,
    text::{Detokenizer, Pieces, StopStrings},
};

/// Most tokens in one message: a client that was slow catches up in few messages.
const MAX_TOKENS: usize = 256;

/// What a stream needs beside its ticket.
pub struct Setup {
    /// The vocabulary, when text is wanted and there is one.
    pub pieces: Option<Arc<Pieces>>,
    /// When to stop.
    pub stop: v1::Stop,
    /// Leave the timeline out.
    pub omit_timeline: bool,
    /// Where the ending is told.
    pub telemetry: Arc<Telemetry>,
    /// Injected `deliver`: delay of the first message.
    pub delay: Option<Duration>,
    /// Held while the stream is open.
    pub open: TaskTrackerToken,
}

/// The response stream of one request.
pub struct TokenStream {
    ticket: Ticket,
    text: Option<Detokenizer>,
    strings: StopStrings,
    stop_token_ids: Vec<u32>,
    omit_timeline: bool,
    telemetry: Arc<Telemetry>,
    delay: Option<Pin<Box<Sleep>>>,
    pending_delay: Option<Duration>,
    _open: TaskTrackerToken,
    batch: Vec<Token>,
    output_tokens: u32,
    phase: Phase,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Streaming,
    /// A stop string is complete; tokens that still come are not shown.
    Stopped,
    Done,
}

impl TokenStream {
    /// The stream of a request that is queued.
    pub fn new(ticket: Ticket, setup: Setup) -> Self {
        Self {
            ticket,
            text: setup.pieces.map(Detokenizer::new),
            strings: StopStrings::new(setup.stop.strings),
            stop_token_ids: setup.stop.token_ids,
            omit_timeline: setup.omit_timeline,
            telemetry: setup.telemetry,
            delay: None,
            pending_delay: setup.delay,
            _open: setup.open,
            batch: Vec::new(),
            output_tokens: 0,
            phase: Phase::Streaming,
        }
    }

    /// The batch as a message; stops at a complete stop string.
    fn message(&mut self) -> v1::Tokens {
        let mut message = v1::Tokens {
            ids: Vec::with_capacity(self.batch.len()),
            text: String::new(),
            emit_ns: Vec::with_capacity(self.batch.len()),
        };
        let mut piece = String::new();
        for token in &self.batch {
            message.ids.push(token.id);
            message.emit_ns.push(token.at.ns());
            self.output_tokens += 1;
            // The text of a stop token is left out; generation ends with it.
            let Some(text) = self.text.as_mut().filter(|_| !self.stop_token_ids.contains(&token.id)) else {
                continue;
            };
            piece.clear();
            text.push(token.id, &mut piece);
            if self.strings.push(&piece, &mut message.text) {
                self.phase = Phase::Stopped;
                self.ticket.claim.withdraw(Withdrawal::StopString);
                break;
            }
        }
        self.batch.clear();
        message
    }

    /// The last message, or the failure.
    fn conclude(&mut self, ending: Ending) -> Result<v1::GenerateResponse, Status> {
        let Ending { end, mut record } = ending;
        self.ticket.claim.settle();
        let stopped = self.phase == Phase::Stopped;
        self.phase = Phase::Done;
        let reason = match end {
            // A complete stop string wins, whatever ended the sequence meanwhile.
            _ if stopped => v1::FinishReason::StopString,
            End::Finished(reason) => reason,
            End::Failed(failure, by) => {
                self.telemetry.failed(record, &failure, by);
                return Err(failure.into());
            }
        };
        let mut text = String::new();
        let mut reason = reason;
        if !stopped && let Some(detokenizer) = &mut self.text {
            let mut rest = String::new();
            detokenizer.finish(&mut rest);
            if self.strings.push(&rest, &mut text) {
                reason = v1::FinishReason::StopString;
            } else {
                self.strings.finish(&mut text);
            }
        }
        record.output_tokens = self.output_tokens;
        let finished = v1::Finished {
            request_id: record.id.to_string(),
            reason: reason.into(),
            usage: Some(v1::Usage {
                prompt_tokens: record.prompt_tokens,
                output_tokens: self.output_tokens,
                cached_tokens: record.engine.as_ref().map_or(0, |engine| engine.prompt_tokens_cached),
            }),
            timeline: (!self.omit_timeline).then(|| record.timeline(&self.telemetry.domain)),
            text,
        };
        self.telemetry.finished(record, reason);
        Ok(event(v1::generate_response::Event::Finished(finished)))
    }

    /// Waits the injected delay before the first message.
    fn poll_delay(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if let Some(delay) = self.pending_delay.take() {
            self.delay = Some(Box::pin(tokio::time::sleep(delay)));
        }
        if let Some(delay) = &mut self.delay {
            ready!(delay.as_mut().poll(cx));
            self.delay = None;
        }
        Poll::Ready(())
    }
}

impl Stream for TokenStream {
    type Item = Result<v1::GenerateResponse, Status>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        loop {
            if this.phase == Phase::Done {
                return Poll::Ready(None);
            }
            if this.batch.is_empty() {
                let taken = ready!(this.ticket.tokens.poll_recv_many(cx, &mut this.batch, MAX_TOKENS));
                if taken == 0 {
                    let ending = ready!(Pin::new(&mut this.ticket.ending).poll(cx));
                    return Poll::Ready(Some(match ending {
                        Ok(ending) => this.conclude(ending),
                        // The dispatch task died without a word.
                        Err(_) => {
                            this.phase = Phase::Done;
                            Err(Failure::Bug { id: "dispatch".into() }.into())
                        }
                    }));
                }
            }
            if this.phase == Phase::Stopped {
                this.batch.clear();
                continue;
            }
            ready!(this.poll_delay(cx));
            let tokens = this.message();
            return Poll::Ready(Some(Ok(event(v1::generate_response::Event::Tokens(tokens)))));
        }
    }
}

impl Drop for TokenStream {
    /// An ending that came but was never read is told here; one that has not come, by the dispatch task.
    fn drop(&mut self) {
        if self.phase == Phase::Done {
            return;
        }
        self.ticket.claim.withdraw(Withdrawal::HungUp);
        self.ticket.ending.close();
        if let Ok(Ending { record, .. }) = self.ticket.ending.try_recv() {
            let failure = Failure::Cancelled("the client hung up".into());
            self.telemetry.failed(record, &failure, Some(CancelledBy::Client));
        }
    }
}

fn event(event: v1::generate_response::Event) -> v1::GenerateResponse {
    v1::GenerateResponse { event: Some(event) }
}
