use firstlight_proto::v1::{
    ProbeClockRequest, SpanEvent, WatchSpansRequest, span::Timeline, telemetry_client::TelemetryClient,
};
use tonic::transport::Endpoint;

use crate::harness::{Engine, Scheduler, Setup, sequence};

#[tokio::test]
async fn a_watcher_sees_each_sequence_at_its_first_token_and_at_its_end() {
    let engine = Engine::start(Setup::default()).await;
    let mut client = TelemetryClient::new(connect(&engine).await);
    let request = WatchSpansRequest { run_label: "run".into(), ..Default::default() };
    let mut spans = client.watch_spans(request).await.unwrap().into_inner();

    let (mut scheduler, _) = Scheduler::attach(&engine, 1).await;
    let other_run = firstlight_proto::v1::Sequence { run_label: "other".into(), ..sequence(2, 8, 4) };
    scheduler.admit(1, vec![sequence(1, 8, 4), other_run]).await;
    scheduler.outputs(&[1, 2]).await;

    let mut seen = Vec::new();
    while seen.len() < 2 {
        let batch = spans.message().await.unwrap().unwrap();
        assert_eq!((batch.name.as_str(), batch.dropped), ("engine", 0));
        seen.extend(batch.spans);
    }
    assert!(seen.iter().all(|span| span.request_id == "request-1" && span.prompt_tokens == 8));
    assert_eq!((seen[0].event(), seen[0].output_tokens), (SpanEvent::FirstToken, 1));
    assert_eq!((seen[1].event(), seen[1].output_tokens), (SpanEvent::Finished, 4));
    assert_eq!(seen[1].outcome, "length");
    assert!(matches!(&seen[0].timeline, Some(Timeline::Engine(timeline)) if timeline.first_token_ns > 0));
}

#[tokio::test]
async fn a_probe_is_answered_between_its_two_ends() {
    let engine = Engine::start(Setup::default()).await;
    let mut client = TelemetryClient::new(connect(&engine).await);
    let clock = firstlight_proto::clock::Clock::new();
    let t1_ns = clock.now().ns();
    let answer = client.probe_clock(ProbeClockRequest { t1_ns }).await.unwrap().into_inner();
    let t4_ns = clock.now().ns();
    let stamps = [t1_ns, answer.t2_ns, answer.t3_ns, t4_ns];
    assert!(stamps.is_sorted(), "{stamps:?}: one clock domain, so the four stamps are in order");
}

async fn connect(engine: &Engine) -> tonic::transport::Channel {
    Endpoint::from_shared(engine.url.clone()).unwrap().connect().await.unwrap()
}
