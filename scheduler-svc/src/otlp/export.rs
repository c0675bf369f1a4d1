//! The queue of requests that ended, and the task that sends them to a collector in batches.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use anyhow::{Context as _, ensure};
use firstlight_proto::clock::Clock;
use opentelemetry_proto::tonic::{
    collector::trace::v1::{ExportTraceServiceRequest, trace_service_client::TraceServiceClient},
    common::v1::InstrumentationScope,
    resource::v1::Resource,
    trace::v1::{ResourceSpans, ScopeSpans, Span},
};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tonic::transport::{Channel, Endpoint};

use super::spans::{Frame, request_spans, text};
use crate::{
    ended::Ended,
    metrics::{TraceDrop, TraceMetrics},
};

/// Requests that may wait to be sent.
const QUEUE: usize = 4096;
/// Requests in one message: some hundred kilobytes, far below a collector's limit of 4 MiB.
const BATCH: usize = 256;
/// Time to gather a batch.
const GATHER: Duration = Duration::from_millis(200);
/// Time that a collector has for one batch.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Time that it has for what is left when the service stops.
const GRACE: Duration = Duration::from_secs(1);

/// Where ended requests are handed in; never waits.
#[derive(Debug)]
pub struct Traces {
    queue: mpsc::Sender<Arc<Ended>>,
    metrics: TraceMetrics,
}

/// Sends what was handed in.
#[derive(Debug)]
pub struct Exporter {
    queue: mpsc::Receiver<Arc<Ended>>,
    collector: TraceServiceClient<Channel>,
    clock: Clock,
    metrics: TraceMetrics,
}

/// The way to the collector at `endpoint` (`http://HOST:PORT`), which need not be there yet. Stamps are of `clock`.
///
/// # Errors
/// When `endpoint` is no such address.
pub fn to(endpoint: &str, clock: Clock, metrics: TraceMetrics) -> anyhow::Result<(Traces, Exporter)> {
    ensure!(
        endpoint.starts_with("http://"),
        "--otlp-endpoint {endpoint}: give http://HOST:PORT, in the clear, of a collector nearby"
    );
    let channel = Endpoint::from_shared(endpoint.to_owned())
        .with_context(|| format!("--otlp-endpoint {endpoint}"))?
        .connect_timeout(TIMEOUT)
        .timeout(TIMEOUT)
        .connect_lazy();
    let (sender, queue) = mpsc::channel(QUEUE);
    let exporter =
        Exporter { queue, collector: TraceServiceClient::new(channel), clock, metrics: metrics.clone() };
    Ok((Traces { queue: sender, metrics }, exporter))
}

impl Traces {
    /// Hands in a request that ended, unless its caller records no trace of it.
    pub fn export(&self, ended: Arc<Ended>) {
        if ended.record.caller_trace.is_some_and(|trace| !trace.sampled) {
            return;
        }
        match self.queue.try_reserve() {
            Ok(place) => place.send(ended),
            Err(_) => self.metrics.dropped(TraceDrop::QueueFull, 1),
        }
    }
}

impl Exporter {
    /// Sends batches until `stop`, then what is left, if the collector takes it soon.
    pub async fn run(self, stop: CancellationToken) {
        let grace = async {
            stop.cancelled().await;
            tokio::time::sleep(GRACE).await;
        };
        tokio::select! {
            () = self.export(&stop) => {}
            () = grace => {}
        }
    }

    async fn export(mut self, stop: &CancellationToken) {
        let mut batch = Vec::with_capacity(BATCH);
        let mut failing = false;
        while stop.run_until_cancelled(self.queue.recv_many(&mut batch, BATCH)).await.is_some_and(|n| n > 0) {
            stop.run_until_cancelled(tokio::time::sleep(GATHER)).await;
            while batch.len() < BATCH
                && let Ok(ended) = self.queue.try_recv()
            {
                batch.push(ended);
            }
            let sent = self.send(&mut batch).await;
            if let (Err(error), false) = (&sent, failing) {
                tracing::warn!(%error, "the trace collector takes nothing; dropped traces are counted");
            }
            failing = sent.is_err();
        }
        self.queue.close();
        while self.queue.recv_many(&mut batch, BATCH).await > 0 {
            if self.send(&mut batch).await.is_err() {
                return;
            }
        }
    }

    async fn send(&mut self, batch: &mut Vec<Arc<Ended>>) -> Result<(), tonic::Status> {
        let traces = batch.len() as u64;
        let request = message(batch.drain(..), self.clock.unix_offset_ns());
        match self.collector.export(request).await {
            Ok(answer) => {
                let rejected =
                    answer.into_inner().partial_success.map_or(0, |partial| partial.rejected_spans);
                // The protocol tells spans, not whose; each is charged to a trace of its own.
                let refused = u64::try_from(rejected).unwrap_or(0).min(traces);
                self.metrics.exported(traces - refused);
                self.metrics.dropped(TraceDrop::Refused, refused);
                Ok(())
            }
            Err(status) => {
                self.metrics.dropped(TraceDrop::Unreachable, traces);
                Err(status)
            }
        }
    }
}

/// One message: our spans under our name, each engine's under its own.
fn message(batch: impl Iterator<Item = Arc<Ended>>, unix_offset_ns: i64) -> ExportTraceServiceRequest {
    let mut ours = Vec::new();
    let mut engines: BTreeMap<Arc<str>, Vec<Span>> = BTreeMap::new();
    for ended in batch {
        let frame = Frame::new(ended.record.caller_trace, unix_offset_ns);
        let spans = request_spans(&ended.record, ended.outcome, frame);
        ours.extend(spans.scheduler);
        if !spans.engine.is_empty() {
            engines.entry(spans.engine_name).or_default().extend(spans.engine);
        }
    }
    let mut resource_spans = vec![of_service("firstlight-scheduler", crate::telemetry::NAME, ours)];
    resource_spans
        .extend(engines.into_iter().map(|(name, spans)| of_service("firstlight-engine", &name, spans)));
    ExportTraceServiceRequest { resource_spans }
}

fn of_service(service: &str, instance: &str, spans: Vec<Span>) -> ResourceSpans {
    let attributes = vec![text("service.name", service), text("service.instance.id", instance)];
    let scope = InstrumentationScope {
        name: "firstlight".to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        ..InstrumentationScope::default()
    };
    ResourceSpans {
        resource: Some(Resource { attributes, ..Resource::default() }),
        scope_spans: vec![ScopeSpans { scope: Some(scope), spans, ..ScopeSpans::default() }],
        ..ResourceSpans::default()
    }
}
