//! A scheduler's stream: each message is decoded, stamped, checked and handed to the step loop. Probes go straight
//! to the response stream. When the stream ends, for whatever reason, its sequences are aborted.

use std::{
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use firstlight_proto::{
    clock::Stamp,
    error::Failure,
    inject::{Injections, Segment},
    v1::{
        Open, ProbeClockRequest, SchedulerMessage, SetLimits, engine_server::Engine,
        scheduler_message::Message,
    },
};
use firstlight_sim::planner::Limits;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status, Streaming};

use super::{
    delay,
    stream::{AttachStream, PROBES},
    telemetry::Identity,
    validate::{self, Bounds},
};
use crate::step::{AttachmentKey, Command, Outgoing, StepHandle, outgoing};

/// How long a scheduler may take to open the stream it has dialled.
const OPEN_WITHIN: Duration = Duration::from_secs(10);

/// A model that is loaded and the loop that runs it.
#[derive(Debug, Clone)]
pub struct Loaded {
    /// The way to the step loop.
    pub step: StepHandle,
    /// What sequences have to fit into.
    pub bounds: Bounds,
}

/// The service.
pub struct EngineService {
    /// Set once the model is loaded.
    pub loaded: Arc<OnceLock<Loaded>>,
    /// Who answers probes.
    pub identity: Identity,
    /// Known delays.
    pub injections: Injections,
    /// No new attachments any more.
    pub drain: CancellationToken,
    /// Names the attachments.
    pub next_key: AtomicU64,
}

#[tonic::async_trait]
impl Engine for EngineService {
    type AttachStream = AttachStream;

    async fn attach(
        &self,
        request: Request<Streaming<SchedulerMessage>>,
    ) -> Result<Response<AttachStream>, Status> {
        let loaded = self.loaded.get().ok_or_else(|| unavailable("the model is still loading"))?;
        if self.drain.is_cancelled() {
            return Err(unavailable("the engine is draining"));
        }
        let key = AttachmentKey(self.next_key.fetch_add(1, Ordering::Relaxed));
        let (outgoing, mut incoming) = outgoing::channel();
        let (probes, answered) = mpsc::channel(PROBES);
        if let Some(delay) = self.injections.at(Segment::Return) {
            incoming.messages = delay::line(self.identity.clock, delay, incoming.messages);
        }
        let attachment = Arc::new(OnceLock::new());
        let reader = Reader {
            key,
            attachment: attachment.clone(),
            identity: self.identity.clone(),
            bounds: loaded.bounds.clone(),
            commands: Commands::new(loaded.step.clone(), &self.injections, &self.identity),
            probes,
            outgoing: Some(outgoing),
        };
        tokio::spawn(reader.run(request.into_inner()));
        let identity = self.identity.clone();
        let step = loaded.step.clone();
        Ok(Response::new(AttachStream {
            key,
            attachment,
            identity,
            probes: answered,
            incoming,
            step,
            ended: false,
        }))
    }
}

/// The task that reads one stream.
struct Reader {
    key: AttachmentKey,
    attachment: Arc<OnceLock<u64>>,
    identity: Identity,
    bounds: Bounds,
    commands: Commands,
    probes: mpsc::Sender<(Stamp, ProbeClockRequest)>,
    /// Until the stream is open.
    outgoing: Option<Outgoing>,
}

impl Reader {
    async fn run(mut self, mut inbound: Streaming<SchedulerMessage>) {
        let status = self.read(&mut inbound).await.err();
        if let Some(status) = &status {
            tracing::warn!(attachment = self.key.0, %status, "attachment ends");
        }
        match (self.outgoing.take(), status) {
            (Some(outgoing), Some(status)) => outgoing.end(status),
            (Some(_), None) => {}
            (None, status) => {
                let detach = Command::Detach { key: self.key, status };
                self.commands.send(self.identity.clock.now(), detach).await;
            }
        }
    }

    async fn read(&mut self, inbound: &mut Streaming<SchedulerMessage>) -> Result<(), Status> {
        let first = tokio::time::timeout(OPEN_WITHIN, inbound.message()).await;
        let first = first.map_err(|_| invalid("message", "no Open within 10 s of the stream's start"))??;
        let Some(first) = first else { return Ok(()) };
        let Some(Message::Open(open)) = first.message else {
            return Err(invalid("message", "the first message must be Open"));
        };
        self.open(first.attachment, open).await?;
        while let Some(message) = inbound.message().await? {
            let received = self.identity.clock.now();
            if message.attachment != first.attachment {
                let reason = format!("{}, but this stream is {}", message.attachment, first.attachment);
                return Err(invalid("attachment", &reason));
            }
            self.take(received, message.message).await?;
        }
        Ok(())
    }

    async fn open(&mut self, attachment: u64, open: Open) -> Result<(), Status> {
        let limits = open.limits.map(|limits| self.limits(limits)).transpose()?;
        tracing::info!(attachment = self.key.0, scheduler = open.scheduler, "attached");
        // Set once: this is the only writer, and it runs once.
        let _ = self.attachment.set(attachment);
        if let Some(outgoing) = self.outgoing.take() {
            let attach = Command::Attach { key: self.key, outgoing, limits };
            self.commands.send(self.identity.clock.now(), attach).await;
        }
        Ok(())
    }

    fn limits(&self, limits: SetLimits) -> Result<Limits, Failure> {
        if limits.decode_first && self.bounds.mixed {
            // Ending the stream for it would drop its sequences, now and after every attempt to attach again.
            tracing::warn!(
                attachment = self.key.0,
                "decode_first means nothing to mixed forwards; it stays off"
            );
        }
        validate::limits(limits, &self.bounds)
    }

    async fn take(&mut self, received: Stamp, message: Option<Message>) -> Result<(), Status> {
        let key = self.key;
        let command = match message {
            Some(Message::Probe(probe)) => {
                // A scheduler that does not read its answers gets no more of them.
                let _ = self.probes.try_send((received, probe));
                return Ok(());
            }
            Some(Message::Admit(admit)) => {
                let checked = admit.sequences.into_iter().map(|seq| validate::sequence(seq, &self.bounds));
                Command::Admit { key, seq: admit.seq, received, sequences: checked.collect() }
            }
            Some(Message::Cancel(cancel)) => Command::Cancel { key, handles: cancel.handles },
            Some(Message::SetLimits(limits)) => Command::SetLimits(self.limits(limits)?),
            Some(Message::Open(_)) => return Err(invalid("message", "this stream is open already")),
            None => return Err(invalid("message", "empty, or from a newer scheduler")),
        };
        self.commands.send(received, command).await;
        Ok(())
    }
}

/// The way to the step loop, direct or through a known delay.
enum Commands {
    Direct(StepHandle),
    Delayed(mpsc::Sender<(Stamp, Command)>),
}

impl Commands {
    fn new(step: StepHandle, injections: &Injections, identity: &Identity) -> Self {
        let Some(delay) = injections.at(Segment::EngineWait) else { return Self::Direct(step) };
        let (sender, receiver) = mpsc::channel(1024);
        let mut delayed = delay::line(identity.clock, delay, receiver);
        tokio::spawn(async move {
            while let Some((_, command)) = delayed.recv().await {
                step.send(command);
            }
        });
        Self::Delayed(sender)
    }

    async fn send(&self, received: Stamp, command: Command) {
        match self {
            Self::Direct(step) => step.send(command),
            // The line ends only with the runtime.
            Self::Delayed(line) => drop(line.send((received, command)).await),
        }
    }
}

fn unavailable(reason: &str) -> Status {
    Failure::Unavailable { reason: reason.to_owned(), retry_after: Duration::from_millis(250) }.into()
}

fn invalid(field: &'static str, reason: &str) -> Status {
    Failure::Invalid { field, reason: reason.to_owned() }.into()
}
