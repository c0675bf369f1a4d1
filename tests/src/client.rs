//! Requests to the pair, and what came back.

use std::time::Duration;

use firstlight_proto::v1::{
    Finished, GenerateRequest, GenerateResponse, GetModelRequest, GetModelResponse, Stop, TokenIds,
    admin_client::AdminClient, generate_request::Prompt, generate_response::Event,
    inference_client::InferenceClient,
};
use tonic::{
    Request, Status, Streaming,
    transport::{Channel, Endpoint, Error},
};

use crate::wait;

/// A connection to a scheduler.
#[derive(Clone)]
pub struct Client {
    inference: InferenceClient<Channel>,
}

/// A stream of tokens and what has been read of it.
pub struct Stream {
    stream: Streaming<GenerateResponse>,
    /// The request's id, as the response headers told it.
    pub id: String,
    /// Read so far.
    pub reply: Reply,
}

/// What a request produced.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Reply {
    /// Token ids in order.
    pub ids: Vec<u32>,
    /// Their text.
    pub text: String,
    /// Emit stamps, one per token.
    pub emit_ns: Vec<i64>,
    /// The last message, once it came.
    pub finished: Option<Finished>,
}

impl Client {
    /// Connects to the scheduler at `address`.
    ///
    /// # Panics
    /// When nobody listens there.
    pub async fn connect(address: &str) -> Self {
        let channel = channel(address).await.expect("scheduler");
        Self { inference: InferenceClient::new(channel) }
    }

    /// Connects with room for only 64 KiB of a stream that is not read; the transport's own default is 2 MiB.
    ///
    /// # Panics
    /// When nobody listens at `address`.
    pub async fn connect_narrow(address: &str) -> Self {
        let endpoint = endpoint(address).expect("address").initial_stream_window_size(65_535);
        Self { inference: InferenceClient::new(endpoint.connect().await.expect("scheduler")) }
    }

    /// The model that is served and the engines attached.
    ///
    /// # Panics
    /// When the scheduler does not answer.
    pub async fn model(&self) -> GetModelResponse {
        let answer = self.inference.clone().get_model(GetModelRequest {}).await;
        answer.expect("GetModel").into_inner()
    }

    /// Sends `request`; returns when the response headers are there, that is, when it is queued.
    ///
    /// # Errors
    /// The service's refusal.
    pub async fn open(&self, request: impl tonic::IntoRequest<GenerateRequest>) -> Result<Stream, Status> {
        let mut inference = self.inference.clone();
        let opened = inference.generate(request);
        let response = wait::within_patience("response headers", opened).await?;
        let id = response.metadata().get("x-request-id").map(|id| id.to_str().expect("an id in ASCII"));
        let id = id.unwrap_or_default().to_owned();
        Ok(Stream { stream: response.into_inner(), id, reply: Reply::default() })
    }

    /// Sends `request` and reads its stream to the end.
    ///
    /// # Errors
    /// The service's refusal, or the failure that ended the stream.
    pub async fn generate(&self, request: impl tonic::IntoRequest<GenerateRequest>) -> Result<Reply, Status> {
        self.open(request).await?.rest().await
    }
}

impl Stream {
    /// Reads until at least `count` tokens have come.
    ///
    /// # Errors
    /// The failure that ended the stream.
    ///
    /// # Panics
    /// When the stream finishes before.
    pub async fn tokens(&mut self, count: usize) -> Result<&Reply, Status> {
        while self.reply.ids.len() < count {
            assert!(self.next().await?, "the stream finished after {} tokens", self.reply.ids.len());
        }
        Ok(&self.reply)
    }

    /// Reads to the end.
    ///
    /// # Errors
    /// The failure that ended the stream.
    ///
    /// # Panics
    /// When the stream ends without its last message.
    pub async fn rest(mut self) -> Result<Reply, Status> {
        while self.next().await? {}
        assert!(self.reply.finished.is_some(), "the stream ended without Finished");
        Ok(self.reply)
    }

    /// Reads one message; false at the end of the stream.
    async fn next(&mut self) -> Result<bool, Status> {
        let message = wait::within_patience("the next message of a stream", self.stream.message()).await?;
        match message.and_then(|message| message.event) {
            None => return Ok(false),
            Some(Event::Tokens(tokens)) => {
                assert_eq!(tokens.ids.len(), tokens.emit_ns.len(), "one emit stamp per token");
                self.reply.ids.extend(tokens.ids);
                self.reply.emit_ns.extend(tokens.emit_ns);
                self.reply.text.push_str(&tokens.text);
            }
            Some(Event::Finished(finished)) => {
                self.reply.text.push_str(&finished.text);
                self.reply.finished = Some(finished);
            }
        }
        Ok(true)
    }
}

/// A greedy request for `count` tokens after `prompt`, whatever they are.
pub fn ids_request(prompt: &[u32], count: u32) -> GenerateRequest {
    GenerateRequest {
        prompt: Some(Prompt::TokenIds(TokenIds { ids: prompt.to_vec() })),
        max_new_tokens: count,
        stop: Some(Stop { ignore_eos: true, ..Stop::default() }),
        ..GenerateRequest::default()
    }
}

/// A greedy request for at most `count` tokens after `text`.
pub fn text_request(text: &str, count: u32) -> GenerateRequest {
    GenerateRequest {
        prompt: Some(Prompt::Text(text.to_owned())),
        max_new_tokens: count,
        ..GenerateRequest::default()
    }
}

/// `request` with a deadline.
pub fn with_deadline(request: GenerateRequest, deadline: Duration) -> Request<GenerateRequest> {
    let mut request = Request::new(request);
    request.set_timeout(deadline);
    request
}

/// Admin RPCs at `address`.
///
/// # Panics
/// When nobody listens there.
pub async fn admin(address: &str) -> AdminClient<Channel> {
    AdminClient::new(channel(address).await.expect("admin listener"))
}

pub(crate) async fn channel(address: &str) -> Result<Channel, Error> {
    endpoint(address)?.connect().await
}

fn endpoint(address: &str) -> Result<Endpoint, Error> {
    Ok(Endpoint::from_shared(format!("http://{address}"))?.connect_timeout(Duration::from_secs(2)))
}
