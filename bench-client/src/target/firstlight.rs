//! Requests over gRPC to scheduler-svc, spread over several connections so that a server's limit on
//! streams per connection does not hide a wait inside the client's transport.

use std::{
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use anyhow::Context as _;
use firstlight_proto::{
    clock::Clock,
    error::Kind,
    inject::loss::{Loss, Share},
    serve::{dial, tls::Dialer},
    v1::{GenerateRequest, GenerateResponse, Sampling, Stop, TokenIds, generate_request, generate_response},
};
use http::uri::PathAndQuery;
use tonic::{
    Request, Status,
    client::Grpc,
    metadata::{Ascii, MetadataKey, MetadataValue},
    transport::{Channel, Endpoint},
};

use super::{
    Arrival, Ask, Caller, Outcome, Prompt, Record,
    codec::{Stamped, StampedCodec},
};

/// What every request of a run has in common.
#[derive(Clone, Debug, Default)]
pub struct Common {
    /// Model name; empty = the one served.
    pub model: String,
    /// How tokens are chosen; `None` = greedy.
    pub sampling: Option<Sampling>,
    /// When generation ends early.
    pub stop: Stop,
    /// Groups the run's spans.
    pub run_label: String,
    /// Leave the prefix cache alone.
    pub no_prefix_cache: bool,
    /// Requests whose timelines the scheduler is to withhold.
    pub omit_timelines: Share,
    /// Deadline of each request; else its caller's.
    pub timeout: Option<Duration>,
    /// Metadata of each request, such as `x-tenant`, whoever its caller is.
    pub metadata: Vec<(MetadataKey<Ascii>, MetadataValue<Ascii>)>,
}

/// What one message of a stream brought.
#[derive(Clone, Copy, Debug)]
pub struct Message<'a> {
    /// Token ids; empty in the final message.
    pub ids: &'a [u32],
    /// Text that became final.
    pub text: &'a str,
}

/// scheduler-svc, over a few connections.
#[derive(Debug)]
pub struct Firstlight {
    channels: Vec<Channel>,
    next: AtomicUsize,
    clock: Clock,
    common: Common,
}

/// Opens one connection to `addr` (`host:port`), in the clear.
///
/// # Errors
/// Names the address when it is malformed or does not answer within two seconds.
pub async fn connect(addr: &str) -> anyhow::Result<Channel> {
    connect_over(addr, None).await
}

/// Opens one connection to `addr` (`host:port`), over TLS when `tls` says how.
///
/// # Errors
/// Names the address when it is malformed, does not answer within two seconds, or is not trusted.
pub async fn connect_over(addr: &str, tls: Option<Dialer>) -> anyhow::Result<Channel> {
    let endpoint = Endpoint::from_shared(format!("http://{addr}"))
        .with_context(|| format!("{addr:?} is no address; write HOST:PORT"))?
        .connect_timeout(Duration::from_secs(2))
        .initial_connection_window_size(16 << 20)
        .initial_stream_window_size(1 << 20);
    let opened = endpoint.connect_with_connector(dial::connector(tls)).await;
    opened.with_context(|| format!("no server answers at {addr}"))
}

impl Firstlight {
    /// Connects `channels` times to `addr`, in the clear.
    ///
    /// # Errors
    /// As [`connect`].
    pub async fn connect(addr: &str, channels: usize, clock: Clock, common: Common) -> anyhow::Result<Self> {
        Self::connect_over(addr, None, channels, clock, common).await
    }

    /// Connects `channels` times to `addr`, over TLS when `tls` says how.
    ///
    /// # Errors
    /// As [`connect_over`].
    pub async fn connect_over(
        addr: &str,
        tls: Option<Dialer>,
        channels: usize,
        clock: Clock,
        common: Common,
    ) -> anyhow::Result<Self> {
        let mut opened = Vec::with_capacity(channels.max(1));
        for _ in 0..channels.max(1) {
            opened.push(connect_over(addr, tls.clone()).await?);
        }
        Ok(Self { channels: opened, next: AtomicUsize::new(0), clock, common })
    }

    /// The same connections for requests under another run label, such as those of a warm-up.
    pub fn relabelled(&self, run_label: String) -> Self {
        let common = Common { run_label, ..self.common.clone() };
        Self { channels: self.channels.clone(), next: AtomicUsize::new(0), clock: self.clock, common }
    }

    /// Sends one request and reads its stream to the end, filling in `record`; `on_message` sees every
    /// message.
    pub async fn generate(
        &self,
        ask: Ask,
        record: &mut Record,
        mut on_message: impl FnMut(&Record, &Message<'_>),
    ) {
        record.outcome = match self.stream(ask, record, &mut on_message).await {
            Ok(()) => Outcome::Finished,
            Err(status) => {
                Outcome::Failed { kind: Kind::of(&status).label(), message: status.message().to_owned() }
            }
        };
        record.ended = Some(self.clock.now());
    }

    async fn stream(
        &self,
        ask: Ask,
        record: &mut Record,
        on_message: &mut impl FnMut(&Record, &Message<'_>),
    ) -> Result<(), Status> {
        let channel = self.channels[self.next.fetch_add(1, Ordering::Relaxed) % self.channels.len()].clone();
        let request = self.request(ask, &record.id)?;
        let mut grpc = Grpc::new(channel);
        let codec = StampedCodec::<GenerateRequest, GenerateResponse>::new(self.clock);
        let encoded = codec.encoded();
        record.sent = Some(self.clock.now());
        grpc.ready().await.map_err(|e| Status::unavailable(format!("connection lost: {e}")))?;
        let path = PathAndQuery::from_static("/firstlight.v1.Inference/Generate");
        let opened = grpc.server_streaming(request, path, codec).await;
        record.submit_end = Some(self.clock.now());
        record.stream_open = encoded.stamp();
        let mut stream = opened?.into_inner();
        let mut finished = false;
        while let Some(Stamped { at, message }) = stream.message().await? {
            match message.event {
                Some(generate_response::Event::Tokens(tokens)) => {
                    let count = tokens.ids.len() as u32;
                    if count > 0 {
                        record.arrivals.push(Arrival { at, tokens: count });
                    }
                    on_message(record, &Message { ids: &tokens.ids, text: &tokens.text });
                }
                Some(generate_response::Event::Finished(end)) => {
                    finished = true;
                    record.prompt_tokens = end.usage.as_ref().map(|u| u.prompt_tokens);
                    record.cached_tokens = end.usage.as_ref().map(|u| u.cached_tokens);
                    record.timeline = end.timeline;
                    on_message(record, &Message { ids: &[], text: &end.text });
                }
                None => {}
            }
        }
        if finished { Ok(()) } else { Err(Status::internal("the stream ended without a final message")) }
    }

    fn request(&self, ask: Ask, id: &str) -> Result<Request<GenerateRequest>, Status> {
        let common = &self.common;
        let mut request = Request::new(GenerateRequest {
            request_id: id.to_owned(),
            model: common.model.clone(),
            prompt: Some(match ask.prompt {
                Prompt::Text(text) => generate_request::Prompt::Text(text),
                Prompt::Ids(ids) => generate_request::Prompt::TokenIds(TokenIds { ids }),
            }),
            max_new_tokens: ask.max_new_tokens,
            sampling: common.sampling,
            stop: Some(common.stop.clone()),
            run_label: common.run_label.clone(),
            omit_timeline: common.omit_timelines.takes(Loss::Timeline, id),
            no_prefix_cache: common.no_prefix_cache,
        });
        let Caller { tenant, class, timeout } = ask.caller;
        let metadata = request.metadata_mut();
        for (key, value) in [("x-tenant", tenant), ("x-class", class)] {
            let Some(value) = value else { continue };
            let value = value.parse().map_err(|_| Status::invalid_argument(format!("{key}: {value:?}")))?;
            metadata.insert(key, value);
        }
        for (key, value) in &common.metadata {
            metadata.insert(key.clone(), value.clone());
        }
        if let Some(timeout) = common.timeout.or(timeout) {
            request.set_timeout(timeout);
        }
        Ok(request)
    }
}
