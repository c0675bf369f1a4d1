//! `ProbeClock` and `WatchSpans` of the engine.

use std::{pin::Pin, sync::Arc};

use firstlight_proto::{
    clock::Clock,
    v1::{
        ClockDomain, ProbeClockRequest, ProbeClockResponse, SpanBatch, WatchSpansRequest,
        telemetry_server::Telemetry,
    },
};
use futures_util::stream::{self, Stream, StreamExt as _};
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status};

use super::spans::SpanHub;

/// Who answers: the engine's name and clock.
#[derive(Debug, Clone)]
pub struct Identity {
    /// Name of the engine.
    pub name: String,
    /// Its clock.
    pub clock: Clock,
    /// Where its stamps are valid.
    pub domain: ClockDomain,
}

impl Identity {
    /// The answer to a probe decoded at `t2_ns`, stamped now.
    pub fn answer(&self, probe: ProbeClockRequest, t2_ns: i64) -> ProbeClockResponse {
        ProbeClockResponse {
            t1_ns: probe.t1_ns,
            t2_ns,
            t3_ns: self.clock.now().ns(),
            domain: Some(self.domain.clone()),
            name: self.name.clone(),
        }
    }
}

/// The service.
pub struct TelemetryService {
    /// Who answers.
    pub identity: Identity,
    /// Where spans come from.
    pub spans: Arc<SpanHub>,
    /// Ends every watch.
    pub stop: CancellationToken,
}

#[tonic::async_trait]
impl Telemetry for TelemetryService {
    async fn probe_clock(
        &self,
        request: Request<ProbeClockRequest>,
    ) -> Result<Response<ProbeClockResponse>, Status> {
        let t2_ns = self.identity.clock.now().ns();
        Ok(Response::new(self.identity.answer(request.into_inner(), t2_ns)))
    }

    type WatchSpansStream = Pin<Box<dyn Stream<Item = Result<SpanBatch, Status>> + Send>>;

    async fn watch_spans(
        &self,
        request: Request<WatchSpansRequest>,
    ) -> Result<Response<Self::WatchSpansStream>, Status> {
        let watch = self.spans.watch(request.into_inner());
        let identity = self.identity.clone();
        let batches = stream::unfold(watch, move |watch| {
            let identity = identity.clone();
            async move {
                let (spans, dropped) = watch.next().await;
                let (domain, name) = (Some(identity.domain), identity.name);
                let batch = SpanBatch { spans, dropped, domain, name, ..SpanBatch::default() };
                Some((Ok(batch), watch))
            }
        });
        let until_stopped = batches.take_until(self.stop.clone().cancelled_owned());
        Ok(Response::new(Box::pin(until_stopped)))
    }
}
