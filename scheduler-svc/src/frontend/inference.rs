//! `Generate` and `GetModel`. Response headers go out when the request is queued: the handler returns then.

use std::sync::Arc;

use firstlight_proto::{
    clock::Stamp,
    error::Failure,
    inject::{Injections, Segment},
    v1::{self, inference_server::Inference},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tonic::{Request, Response, Status, metadata::MetadataMap};

use super::{
    token_stream::{Setup, TokenStream},
    tokenize::Prompts,
    validate,
};
use crate::{
    dispatch::{Dispatcher, client::stopping},
    request::Ask,
    telemetry::Telemetry,
};

/// The service.
pub struct InferenceService {
    /// To the owner of the core.
    pub dispatcher: Dispatcher,
    /// Prompts → token ids.
    pub prompts: Prompts,
    /// Metrics and spans.
    pub telemetry: Arc<Telemetry>,
    /// Delays to inject (`ingress`, `accept`, `deliver`).
    pub injections: Arc<Injections>,
    /// New requests are refused once this is cancelled.
    pub drain: CancellationToken,
    /// Counts open streams.
    pub open: TaskTracker,
}

#[tonic::async_trait]
impl Inference for InferenceService {
    type GenerateStream = TokenStream;

    async fn generate(&self, request: Request<v1::GenerateRequest>) -> Result<Response<TokenStream>, Status> {
        self.injections.wait(Segment::Ingress).await;
        let received = self.telemetry.clock.now();
        self.telemetry.metrics.received.increment(1);
        let (metadata, _, mut message) = request.into_parts();
        // Before anything is checked: a refusal is told its id too.
        if message.request_id.is_empty() {
            message.request_id = uuid::Uuid::now_v7().to_string();
        }
        let id = message.request_id.clone();
        match self.accept(received, &metadata, message).await {
            Ok(stream) => {
                let mut response = Response::new(stream);
                tell_id(response.metadata_mut(), &id);
                Ok(response)
            }
            Err(failure) => {
                self.telemetry.metrics.refused(failure.kind());
                tracing::debug!(request_id = %id, kind = %failure.kind(), reason = %failure, "refused");
                let mut status = Status::from(failure);
                tell_id(status.metadata_mut(), &id);
                Err(status)
            }
        }
    }

    async fn get_model(
        &self,
        _: Request<v1::GetModelRequest>,
    ) -> Result<Response<v1::GetModelResponse>, Status> {
        let served = self.dispatcher.served().borrow().clone();
        let engines = self.dispatcher.with(|dispatch| dispatch.engine_infos()).await?;
        Ok(Response::new(v1::GetModelResponse {
            name: served.name.clone(),
            context_length: if engines.is_empty() { 0 } else { served.context_length },
            vocab_size: served.vocab_size,
            eos_ids: served.eos_ids.clone(),
            has_tokenizer: self.prompts.vocab_size().is_some(),
            engines,
        }))
    }
}

impl InferenceService {
    /// Validates, tokenizes and queues a request: stamps 2 to 3.
    async fn accept(
        &self,
        received: Stamp,
        metadata: &MetadataMap,
        message: v1::GenerateRequest,
    ) -> Result<TokenStream, Failure> {
        if self.drain.is_cancelled() {
            return Err(stopping());
        }
        let open = self.open.token();
        let caller = validate::caller(metadata)?;
        let served = self.dispatcher.served().borrow().clone();
        let checked = validate::request(message, &served, self.prompts.vocab_size())?;
        self.dispatcher.check_room().await?;
        let prompt = self.prompts.ids(checked.prompt).await?;
        self.injections.wait(Segment::Accept).await;
        let ask = Ask {
            id: checked.id.into(),
            run_label: checked.run_label.into(),
            prompt,
            max_new: checked.max_new,
            sampling: checked.sampling,
            stop_token_ids: checked.stop.token_ids.clone(),
            ignore_eos: checked.stop.ignore_eos,
            no_prefix_cache: checked.no_prefix_cache,
            class: caller.class,
            tenant: caller.tenant,
            deadline: caller.timeout.map(|timeout| received + timeout),
            received,
            trace: caller.trace,
        };
        let ticket = self.dispatcher.offer(ask).await?;
        let setup = Setup {
            pieces: self.prompts.pieces(),
            stop: checked.stop,
            omit_timeline: checked.omit_timeline || !self.telemetry.tells,
            telemetry: self.telemetry.clone(),
            delay: self.injections.at(Segment::Deliver),
            open,
        };
        Ok(TokenStream::new(ticket, setup))
    }
}

/// Sends the request's id back, unless it was refused for what it is: a header that is too long breaks the connection.
fn tell_id(metadata: &mut MetadataMap, id: &str) {
    if let (true, Ok(value)) = (validate::is_name(id), id.parse()) {
        metadata.insert("x-request-id", value);
    }
}
