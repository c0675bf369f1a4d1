//! Clock probes and spans, for whoever joins a request's stamps from several processes.

use std::sync::Arc;

use firstlight_proto::{
    serve::spans::SpanStream,
    v1::{self, telemetry_server::Telemetry as Wire},
};
use tonic::{Request, Response, Status};

use crate::telemetry::{NAME, Telemetry};

/// The service.
pub struct TelemetryService {
    /// Clock and watchers.
    pub telemetry: Arc<Telemetry>,
}

#[tonic::async_trait]
impl Wire for TelemetryService {
    type WatchSpansStream = SpanStream;

    async fn probe_clock(
        &self,
        request: Request<v1::ProbeClockRequest>,
    ) -> Result<Response<v1::ProbeClockResponse>, Status> {
        let t2_ns = self.telemetry.clock.now().ns();
        Ok(Response::new(v1::ProbeClockResponse {
            t1_ns: request.into_inner().t1_ns,
            t2_ns,
            domain: Some(v1::ClockDomain::clone(&self.telemetry.domain)),
            name: NAME.to_owned(),
            t3_ns: self.telemetry.clock.now().ns(),
        }))
    }

    async fn watch_spans(
        &self,
        request: Request<v1::WatchSpansRequest>,
    ) -> Result<Response<SpanStream>, Status> {
        let stream = self.telemetry.spans.watch(request.into_inner(), NAME, &self.telemetry.domain)?;
        Ok(Response::new(stream))
    }
}
