//! A server that answers at once: it speaks the client's side of the wire contract and does no work.

use std::{net::SocketAddr, pin::Pin};

use firstlight_proto::{
    clock::Clock,
    v1::{
        FinishReason, Finished, GenerateRequest, GenerateResponse, GetModelRequest, GetModelResponse,
        SchedulerTimeline, Timeline, Tokens, Usage, generate_request, generate_response,
        inference_server::{Inference, InferenceServer},
    },
};
use futures_util::{FutureExt as _, Stream};
use tokio::{net::TcpListener, sync::watch};
use tokio_stream::StreamExt as _;
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status, transport::server::TcpIncoming};

/// Starts the server on a free port of loopback; it ends with `stop`.
///
/// # Errors
/// When no port can be bound.
pub async fn start(clock: Clock, stop: CancellationToken) -> std::io::Result<SocketAddr> {
    start_holding(0, clock, stop).await
}

/// The same, but every stream stays open without a token until `streams` of them are open at once.
///
/// # Errors
/// When no port can be bound.
pub async fn start_holding(
    streams: usize,
    clock: Clock,
    stop: CancellationToken,
) -> std::io::Result<SocketAddr> {
    let open = watch::Sender::new(0);
    let listener = TcpListener::bind((std::net::Ipv4Addr::LOCALHOST, 0)).await?;
    let addr = listener.local_addr()?;
    let served = tonic::transport::Server::builder()
        .max_concurrent_streams(1 << 16)
        .add_service(InferenceServer::new(NullServer { clock, streams, open }))
        .serve_with_incoming_shutdown(
            TcpIncoming::from(listener).with_nodelay(Some(true)),
            stop.cancelled_owned(),
        );
    tokio::spawn(async move {
        if let Err(error) = served.await {
            tracing::error!(%error, "the null server ended");
        }
    });
    Ok(addr)
}

#[derive(Debug)]
struct NullServer {
    clock: Clock,
    /// Streams that must have opened before any of them gets a token.
    streams: usize,
    /// Streams that have opened.
    open: watch::Sender<usize>,
}

#[tonic::async_trait]
impl Inference for NullServer {
    type GenerateStream = Pin<Box<dyn Stream<Item = Result<GenerateResponse, Status>> + Send>>;

    async fn generate(
        &self,
        request: Request<GenerateRequest>,
    ) -> Result<Response<Self::GenerateStream>, Status> {
        let received_ns = self.clock.now().ns();
        let request = request.into_inner();
        let clock = self.clock;
        let (n, mut emitted, mut first_ns) = (request.max_new_tokens, 0, 0);
        let tokens = std::iter::from_fn(move || {
            if emitted < n {
                emitted += 1;
                let now = clock.now().ns();
                first_ns = if emitted == 1 { now } else { first_ns };
                let tokens = Tokens { ids: vec![emitted], text: String::new(), emit_ns: vec![now] };
                return Some(Ok(response(generate_response::Event::Tokens(tokens))));
            }
            let ended = emitted > n;
            emitted = n + 1;
            (!ended).then(|| Ok(response(finished(&request, received_ns, first_ns))))
        });
        self.open.send_modify(|open| *open += 1);
        let (mut open, streams) = (self.open.subscribe(), self.streams);
        let tokens = async move {
            // The sender lives as long as the server.
            let _ = open.wait_for(|open| *open >= streams).await;
            tokio_stream::iter(tokens).fuse()
        };
        Ok(Response::new(Box::pin(tokens.flatten_stream())))
    }

    async fn get_model(&self, _: Request<GetModelRequest>) -> Result<Response<GetModelResponse>, Status> {
        Ok(Response::new(GetModelResponse { name: "null".to_owned(), vocab_size: 256, ..Default::default() }))
    }
}

fn finished(request: &GenerateRequest, received_ns: i64, first_token_ns: i64) -> generate_response::Event {
    let prompt_tokens = match &request.prompt {
        Some(generate_request::Prompt::TokenIds(ids)) => ids.ids.len() as u32,
        _ => 0,
    };
    let scheduler = SchedulerTimeline { received_ns, first_token_ns, ..Default::default() };
    generate_response::Event::Finished(Finished {
        request_id: request.request_id.clone(),
        reason: FinishReason::Length.into(),
        usage: Some(Usage { prompt_tokens, output_tokens: request.max_new_tokens, cached_tokens: 0 }),
        timeline: Some(Timeline { scheduler: Some(scheduler), ..Default::default() }),
        text: String::new(),
    })
}

fn response(event: generate_response::Event) -> GenerateResponse {
    GenerateResponse { event: Some(event) }
}
