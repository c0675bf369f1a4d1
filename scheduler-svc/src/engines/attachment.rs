//! One attachment: a stream to an engine from `Open` to its end, with clock probes on it all the time.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use firstlight_proto::{
    clock::Stamp,
    inject::{Injections, Segment},
    offset::{OffsetEstimator, Probe},
    serve::dial,
    v1::{
        self, engine_client::EngineClient, engine_message::Message as Up, scheduler_message::Message as Down,
    },
};
use futures_util::{Stream, StreamExt as _};
use tokio::sync::{mpsc, watch};
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::{Streaming, transport::Endpoint};

use super::{Attached, ClockView, Context, Event};
use crate::admission::EngineId;

/// Time an engine has for each stage of becoming attached.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// Probes before an engine counts as attached, so that its first request finds a clock offset.
const FIRST_PROBES: usize = 8;
/// Time between probes afterwards.
const PROBE_EVERY: Duration = Duration::from_millis(250);
/// Probes older than this say nothing more about the clock.
const PROBE_WINDOW: Duration = Duration::from_secs(600);
/// A step carries one row per active sequence; this is room for hundreds of thousands.
const MAX_MESSAGE: usize = 64 << 20;

/// One stream to be opened.
pub struct Attachment<'a> {
    /// What every link needs.
    pub context: &'a Context,
    /// Where to dial.
    pub address: &'a Arc<str>,
    /// Id of this stream.
    pub engine: EngineId,
    /// This address was attached before.
    pub again: bool,
    /// Set while attached.
    pub attached: &'a AtomicBool,
}

/// How an attachment ended.
pub struct Ended {
    /// The core knew of it.
    pub was_attached: bool,
    /// Why, for the log.
    pub reason: String,
}

impl Attachment<'_> {
    /// Dials, attaches and relays until the stream ends.
    pub async fn run(&self) -> Ended {
        let mut session = match tokio::time::timeout(HANDSHAKE, self.open()).await {
            Ok(Ok(session)) => session,
            Ok(Err(reason)) => return Ended { was_attached: false, reason },
            Err(_) => {
                let reason = format!("no hello within {} s", HANDSHAKE.as_secs());
                return Ended { was_attached: false, reason };
            }
        };
        self.attached.store(true, Ordering::Relaxed);
        let reason = match session.relay(self.context).await {
            Ok(never) => match never {},
            Err(reason) => reason,
        };
        self.attached.store(false, Ordering::Relaxed);
        self.lost(&reason).await;
        Ended { was_attached: true, reason }
    }

    /// Tells the core that the attachment ended.
    pub async fn lost(&self, reason: &str) {
        // The receiver is gone only when the whole service stops.
        let _ = self.context.events.send(Event::Lost { engine: self.engine, reason: reason.into() }).await;
    }

    async fn open(&self) -> Result<Session, String> {
        let endpoint = Endpoint::from_shared(format!("http://{}", self.address))
            .map_err(|e| format!("address {}: {e}", self.address))?
            .connect_timeout(Duration::from_secs(3))
            .http2_keep_alive_interval(Duration::from_secs(5))
            .keep_alive_timeout(Duration::from_secs(5))
            .keep_alive_while_idle(true);
        let connector = dial::connector(self.context.tls.clone());
        let channel = endpoint.connect_with_connector(connector).await.map_err(|e| full_reason(&e))?;
        let (down, messages) = mpsc::unbounded_channel();
        let open = v1::Open { scheduler: format!("scheduler-svc {}", std::process::id()), limits: None };
        down.send(Down::Open(open)).expect("the receiver is here");
        let outbound = outbound(self.engine, messages, self.context.injections.clone());
        let mut client = EngineClient::new(channel).max_decoding_message_size(MAX_MESSAGE);
        let inbound = client.attach(outbound).await.map_err(|e| full_reason(&e))?.into_inner();
        let estimator = OffsetEstimator::new(PROBE_WINDOW);
        let (clock, view) = watch::channel(None);
        let mut session = Session { engine: self.engine, inbound, down, estimator, clock };
        let hello = session.greet(self.context).await?;
        let attached = Attached {
            engine: self.engine,
            address: self.address.clone(),
            hello,
            down: session.down.clone(),
            clock: view,
            again: self.again,
        };
        let sent = self.context.events.send(Event::Attached(Box::new(attached))).await;
        sent.map_err(|_| "the scheduler stops".to_owned())?;
        Ok(session)
    }
}

/// An open stream.
struct Session {
    engine: EngineId,
    inbound: Streaming<v1::EngineMessage>,
    down: mpsc::UnboundedSender<Down>,
    estimator: OffsetEstimator,
    clock: watch::Sender<ClockView>,
}

enum Never {}

impl Session {
    /// Takes the engine's hello, with its blocks free as they are by the end, and measures its clock.
    async fn greet(&mut self, context: &Context) -> Result<v1::Hello, String> {
        let Up::Hello(mut hello) = self.next().await? else {
            return Err("its first message is no hello".into());
        };
        if let Some(vocabulary) = &context.vocabulary {
            vocabulary.check(&hello)?;
        }
        self.estimator
            .set_domains(&context.domain, hello.domain.as_ref().unwrap_or(&v1::ClockDomain::default()));
        for _ in 0..FIRST_PROBES {
            self.probe(context)?;
            let response = self.probed(&mut hello).await?;
            self.learn(context, &response);
        }
        Ok(hello)
    }

    /// The answer to a probe. The engine may run for others meanwhile: every attachment is told of each forward.
    async fn probed(&mut self, hello: &mut v1::Hello) -> Result<v1::ProbeClockResponse, String> {
        loop {
            match self.next().await? {
                Up::Probe(response) => return Ok(response),
                // The first round promises what is left of the pool now, not what was when we were greeted.
                Up::Step(step) if step.handles.is_empty() => hello.free_blocks = step.free_blocks,
                other => return Err(format!("it answers a probe with {}", kind(&other))),
            }
        }
    }

    /// Relays what the engine says until the stream ends; why it did.
    async fn relay(&mut self, context: &Context) -> Result<Never, String> {
        let mut probes = tokio::time::interval(PROBE_EVERY);
        probes.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            let message = tokio::select! {
                message = self.next() => message?,
                _ = probes.tick() => {
                    self.probe(context)?;
                    continue;
                }
            };
            match message {
                Up::Probe(response) => self.learn(context, &response),
                Up::Hello(_) => return Err("it says hello twice".into()),
                message => self.pass_on(context, message).await?,
            }
        }
    }

    async fn pass_on(&mut self, context: &Context, message: Up) -> Result<(), String> {
        let mut clock = None;
        let mut at = context.clock.now();
        if let Up::Step(step) = &message {
            if !step.first_tokens.is_empty() && context.injections.at(Segment::Return).is_some() {
                context.injections.wait(Segment::Return).await;
                at = context.clock.now();
            }
            if let Some(sent) = Stamp::from_wire(step.sent_ns) {
                self.estimator.received(sent, at);
            }
            if !step.first_tokens.is_empty() {
                clock = self.estimator.view(at);
            }
        }
        let event = Event::Said { engine: self.engine, at, message: Box::new(message), clock };
        context.events.send(event).await.map_err(|_| "the scheduler stops".into())
    }

    /// The next message of this attachment.
    async fn next(&mut self) -> Result<Up, String> {
        loop {
            let message = self.inbound.message().await.map_err(|e| full_reason(&e))?;
            let message = message.ok_or("the engine ended the stream")?;
            if let (true, Some(inner)) = (message.attachment == self.engine.0, message.message) {
                return Ok(inner);
            }
        }
    }

    fn probe(&self, context: &Context) -> Result<(), String> {
        let probe = v1::ProbeClockRequest { t1_ns: context.clock.now().ns() };
        self.down.send(Down::Probe(probe)).map_err(|_| "the stream to the engine is closed".into())
    }

    fn learn(&mut self, context: &Context, response: &v1::ProbeClockResponse) {
        let now = context.clock.now();
        if let Some(probe) = Probe::from_response(response, now) {
            self.estimator.probe(probe);
        }
        self.clock.send_replace(self.estimator.view(now));
    }
}

/// Messages to the engine, marked with the attachment's id.
fn outbound(
    engine: EngineId,
    messages: mpsc::UnboundedReceiver<Down>,
    injections: Arc<Injections>,
) -> impl Stream<Item = v1::SchedulerMessage> {
    UnboundedReceiverStream::new(messages).then(move |message| {
        let injections = injections.clone();
        async move {
            if matches!(message, Down::Admit(_)) {
                injections.wait(Segment::Dispatch).await;
            }
            v1::SchedulerMessage { attachment: engine.0, message: Some(message) }
        }
    })
}

fn kind(message: &Up) -> &'static str {
    match message {
        Up::Hello(_) => "a hello",
        Up::Begun(_) => "a begun round",
        Up::Rejected(_) => "a rejection",
        Up::Step(_) => "a step",
        Up::Probe(_) => "a probe",
        Up::Draining(_) => "word that it drains",
    }
}

/// An error with its causes: "transport error" alone helps nobody.
fn full_reason(error: &dyn std::error::Error) -> String {
    let mut reason = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        let text = inner.to_string();
        if !reason.ends_with(&text) {
            reason = format!("{reason}: {text}");
        }
        cause = inner.source();
    }
    reason
}
