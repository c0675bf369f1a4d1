//! Traces over OTLP: a receiver over real gRPC gets one trace per request, below its caller's span, that holds every
//! segment; and a collector that is slow or absent costs traces, never a request.

use std::{collections::BTreeMap, net::SocketAddr, sync::Arc};

use firstlight_proto::v1::Timeline;
use firstlight_tests::{client::ids_request, pair::Pair, scrape::Page, service::free_address, wait};
use opentelemetry_proto::tonic::{
    collector::trace::v1::{
        ExportTraceServiceRequest, ExportTraceServiceResponse,
        trace_service_server::{TraceService, TraceServiceServer},
    },
    common::v1::{KeyValue, any_value::Value},
    trace::v1::Span,
};
use tokio::sync::{Mutex, Semaphore};
use tonic::{Request, Response, Status, transport::Server};

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const PARENT: &str = "b7ad6b7169203331";

#[tokio::test]
async fn a_request_is_one_trace_below_its_callers_span_with_a_span_per_segment() {
    let collector = Collector::start(true).await;
    let pair = Pair::sim().scheduler(&["--otlp-endpoint", &collector.url]).start().await;
    let mut request = Request::new(ids_request(&[1, 2, 3], 4));
    request.metadata_mut().insert("traceparent", format!("00-{TRACE}-{PARENT}-01").parse().unwrap());
    let reply = pair.client().await.generate(request).await.unwrap();
    let finished = reply.finished.unwrap();
    let timeline = finished.timeline.unwrap();

    let spans = collector.trace_of(&finished.request_id).await;
    let names: Vec<&str> = spans.keys().map(String::as_str).collect();
    let expected =
        ["accept", "decode", "dispatch", "engine_wait", "generate", "prefill", "queue_wait", "return"];
    assert_eq!(names, expected);
    let root = &spans["generate"].1;
    assert_eq!(hex(&root.parent_span_id), PARENT);
    for (name, (service, span)) in &spans {
        assert_eq!(hex(&span.trace_id), TRACE, "{name}");
        assert!(name == "generate" || span.parent_span_id == root.span_id, "{name} lies below the request");
        let by = if ["engine_wait", "prefill"].contains(&name.as_str()) { "engine" } else { "scheduler" };
        assert_eq!(*service, format!("firstlight-{by}"), "{name}");
    }
    let parts = ["accept", "queue_wait", "dispatch", "engine_wait", "prefill", "return"];
    let lengths: i64 = parts.iter().map(|part| length(&spans[*part].1)).sum();
    assert_eq!(lengths, server_ttft(&timeline), "segments add up to the time to the first token, to the ns");
    assert_eq!(length(&spans["prefill"].1), prefill(&timeline));
    assert_eq!(int(root, "gen_ai.usage.output_tokens"), Some(4));
    let causes: i64 =
        root.attributes.iter().filter(|a| a.key.starts_with("firstlight.cause.")).map(value).sum();
    assert_eq!(causes, timeline.scheduler.unwrap().queue_wait_ns, "causes add up to the wait");
}

#[tokio::test]
async fn a_request_without_a_caller_starts_a_trace_and_one_that_is_not_sampled_makes_none() {
    let collector = Collector::start(true).await;
    let pair = Pair::sim().scheduler(&["--otlp-endpoint", &collector.url]).start().await;
    let client = pair.client().await;
    let mut unsampled = Request::new(ids_request(&[1], 1));
    unsampled.metadata_mut().insert("traceparent", format!("00-{TRACE}-{PARENT}-00").parse().unwrap());
    let unsampled = client.generate(unsampled).await.unwrap().finished.unwrap().request_id;
    let own = client.generate(ids_request(&[1], 1)).await.unwrap().finished.unwrap().request_id;
    let spans = collector.trace_of(&own).await;
    let root = &spans["generate"].1;
    assert!(root.parent_span_id.is_empty() && root.trace_id.len() == 16 && hex(&root.trace_id) != TRACE);
    assert!(collector.received_of(&unsampled).await.is_empty());
}

#[tokio::test]
async fn a_request_that_is_cancelled_tells_its_trace_so() {
    let collector = Collector::start(true).await;
    let pair = Pair::sim().scheduler(&["--otlp-endpoint", &collector.url]).start().await;
    let mut stream = pair.client().await.open(ids_request(&[1, 2], 2000)).await.unwrap();
    stream.tokens(2).await.unwrap();
    let id = stream.id.clone();
    drop(stream);
    let root = &collector.trace_of(&id).await["generate"].1;
    assert_eq!(root.status.as_ref().unwrap().message, "cancelled");
}

#[tokio::test]
async fn a_collector_that_is_stuck_costs_traces_and_no_request() {
    let collector = Collector::start(false).await;
    let scheduler = ["--otlp-endpoint", &collector.url, "--max-active-requests", "512"];
    let pair = Pair::sim().engine(&["--sim-time-scale", "0"]).scheduler(&scheduler).start().await;
    // More than the queue and the batch that is stuck can hold.
    let requests = 6_000;
    let client = pair.client().await;
    let gate = Arc::new(Semaphore::new(256));
    let served = (0..requests).map(|_| {
        let (client, gate) = (client.clone(), gate.clone());
        tokio::spawn(async move {
            let _held = gate.acquire_owned().await.unwrap();
            client.generate(ids_request(&[1], 1)).await.map(|reply| reply.ids.len())
        })
    });
    for reply in served.collect::<Vec<_>>() {
        assert_eq!(reply.await.unwrap().unwrap(), 1);
    }
    let page = Page::of(&pair.scheduler_metrics).await;
    let dropped = page.sum_where("firstlight_traces_dropped_total", "reason=\"queue_full\"");
    assert!(dropped > 0.0, "{}", page.text());
    assert_eq!(page.sum("firstlight_requests_finished_total"), f64::from(requests));
}

#[tokio::test]
async fn an_absent_collector_is_counted_and_a_wrong_endpoint_is_refused() {
    let nobody = format!("http://{}", free_address());
    let pair = Pair::sim().scheduler(&["--otlp-endpoint", &nobody]).start().await;
    pair.client().await.generate(ids_request(&[1], 1)).await.unwrap();
    wait::until("a dropped trace", || async {
        let page = Page::of(&pair.scheduler_metrics).await;
        let dropped = page.sum_where("firstlight_traces_dropped_total", "reason=\"unreachable\"");
        (dropped == 1.0).then_some(())
    })
    .await;
    let flags = ["--engine", "127.0.0.1:1", "--otlp-endpoint", "localhost:4317"];
    let said = firstlight_tests::service::refused("scheduler-svc", &flags).await;
    assert!(said.contains("--otlp-endpoint") && said.contains("http://"), "{said}");
}

/// A trace collector: keeps what it receives, or never answers.
struct Collector {
    url: String,
    received: Arc<Mutex<Vec<ExportTraceServiceRequest>>>,
}

struct Receiver {
    received: Arc<Mutex<Vec<ExportTraceServiceRequest>>>,
    answers: bool,
}

#[tonic::async_trait]
impl TraceService for Receiver {
    async fn export(
        &self,
        request: Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        if !self.answers {
            std::future::pending::<()>().await;
        }
        self.received.lock().await.push(request.into_inner());
        Ok(Response::new(ExportTraceServiceResponse::default()))
    }
}

impl Collector {
    async fn start(answers: bool) -> Self {
        let address = free_address();
        let received = Arc::default();
        let service = TraceServiceServer::new(Receiver { received: Arc::clone(&received), answers });
        let listen: SocketAddr = address.parse().unwrap();
        tokio::spawn(Server::builder().add_service(service).serve(listen));
        Self { url: format!("http://{address}"), received }
    }

    /// The spans of a request by name, each with its service, once they have come.
    async fn trace_of(&self, request_id: &str) -> BTreeMap<String, (String, Span)> {
        wait::until("a trace", || async {
            let spans = self.received_of(request_id).await;
            (!spans.is_empty()).then_some(spans)
        })
        .await
    }

    async fn received_of(&self, request_id: &str) -> BTreeMap<String, (String, Span)> {
        let mut all = Vec::new();
        for resource in self.received.lock().await.iter().flat_map(|request| &request.resource_spans) {
            let attributes = &resource.resource.as_ref().unwrap().attributes;
            let service = attributes.iter().find(|a| a.key == "service.name").map(words).unwrap();
            let spans = resource.scope_spans.iter().flat_map(|scope| scope.spans.clone());
            all.extend(spans.map(|span| (service.clone(), span)));
        }
        let of_request = |span: &Span| {
            span.attributes.iter().any(|a| a.key == "firstlight.request_id" && words(a) == request_id)
        };
        let Some(root) = all.iter().find(|(_, span)| of_request(span)).map(|(_, span)| span.clone()) else {
            return BTreeMap::new();
        };
        let ours = |span: &Span| span.span_id == root.span_id || span.parent_span_id == root.span_id;
        let ours = all.into_iter().filter(|(_, span)| ours(span));
        ours.map(|(service, span)| (span.name.clone(), (service, span))).collect()
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn length(span: &Span) -> i64 {
    (span.end_time_unix_nano - span.start_time_unix_nano) as i64
}

fn int(span: &Span, key: &str) -> Option<i64> {
    span.attributes.iter().find(|attribute| attribute.key == key).map(value)
}

fn value(attribute: &KeyValue) -> i64 {
    match attribute.value.as_ref().unwrap().value {
        Some(Value::IntValue(value)) => value,
        ref other => panic!("{}: {other:?}", attribute.key),
    }
}

fn words(attribute: &KeyValue) -> String {
    match &attribute.value.as_ref().unwrap().value {
        Some(Value::StringValue(value)) => value.clone(),
        other => panic!("{}: {other:?}", attribute.key),
    }
}

fn server_ttft(timeline: &Timeline) -> i64 {
    let scheduler = timeline.scheduler.as_ref().unwrap();
    scheduler.first_token_ns - scheduler.received_ns
}

fn prefill(timeline: &Timeline) -> i64 {
    let engine = timeline.engine.as_ref().unwrap();
    engine.first_token_ns - engine.admit_ns
}
