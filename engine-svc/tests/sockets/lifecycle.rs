use std::{
    sync::{Arc, Mutex},
    thread,
    time::Duration,
};

use engine_svc::backend::{Backend, BackendError, Chunk, KvGeometry, ModelInfo, sim::SimBackend};
use firstlight_proto::v1::{RowEnd, engine_message::Message};
use tonic::{Code, transport::Endpoint};
use tonic_health::pb::{HealthCheckRequest, health_client::HealthClient};

use crate::harness::{Engine, Scheduler, Setup, forwards_of, sequence};

/// Notes on which threads it runs, or fails.
struct Watched {
    inner: SimBackend,
    threads: Arc<Mutex<Vec<Option<String>>>>,
    fails: bool,
}

impl Backend for Watched {
    fn info(&self) -> &ModelInfo {
        self.inner.info()
    }

    fn kv(&self) -> KvGeometry {
        self.inner.kv()
    }

    fn forward(&mut self, chunks: &[Chunk<'_>]) -> Result<Vec<Option<u32>>, BackendError> {
        self.threads.lock().unwrap().push(thread::current().name().map(str::to_owned));
        if self.fails {
            return Err(BackendError::Device("it is on fire".to_owned()));
        }
        self.inner.forward(chunks)
    }

    fn copy_block(&mut self, from: u32, to: u32) {
        self.inner.copy_block(from, to);
    }
}

#[tokio::test]
async fn a_backend_has_run_on_the_loops_own_thread_before_the_engine_is_ready() {
    let (setup, threads) = (Setup::default(), Arc::default());
    let watched = Watched { inner: setup.backend(), threads: Arc::clone(&threads), fails: false };
    let engine = Engine::with(setup, Box::new(watched)).await.unwrap();
    let ran = threads.lock().unwrap().clone();
    assert_eq!(ran, vec![Some("step-loop".to_owned()); 2], "a prompt and a row that decodes");
    engine.comes_to_rest().await;
}

#[tokio::test]
async fn a_backend_that_does_not_run_keeps_the_engine_from_becoming_ready() {
    let (setup, threads) = (Setup::default(), Arc::default());
    let watched = Watched { inner: setup.backend(), threads, fails: true };
    let error = Engine::with(setup, Box::new(watched)).await.err().expect("it does not run");
    assert_eq!(format!("{error:#}"), "the first forward, before serving: device: it is on fire");
}

#[tokio::test]
async fn a_stream_that_is_dropped_frees_its_blocks() {
    let engine = Engine::start(Setup { cost: forwards_of(5), ..Setup::default() }).await;
    let (mut gone, _) = Scheduler::attach(&engine, 1).await;
    gone.admit(1, vec![sequence(1, 40, 4000), sequence(2, 40, 4000)]).await;
    gone.admit(2, vec![sequence(3, 40, 4000)]).await;
    while gone.next_step().await.handles.is_empty() {}
    assert!(engine.snapshot().await.free_blocks < 256);
    drop(gone);
    engine.comes_to_rest().await;
    while engine.snapshot().await.attachments > 0 {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

#[tokio::test]
async fn a_half_closed_stream_ends_the_attachment_without_an_error() {
    let engine = Engine::start(Setup { cost: forwards_of(5), ..Setup::default() }).await;
    let (scheduler, _) = Scheduler::attach(&engine, 1).await;
    scheduler.admit(1, vec![sequence(1, 40, 4000)]).await;
    let Scheduler { to_engine, mut from_engine, .. } = scheduler;
    drop(to_engine);
    while from_engine.message().await.unwrap().is_some() {}
    engine.comes_to_rest().await;
}

#[tokio::test]
async fn draining_finishes_what_has_begun_and_hands_the_rest_back_at_once() {
    let engine = Engine::start(Setup { cost: forwards_of(20), ..Setup::default() }).await;
    let (mut scheduler, _) = Scheduler::attach(&engine, 1).await;
    // Its prompt fills every chunk for half a second, so that what comes later waits in the inbox.
    scheduler.admit(1, vec![sequence(1, 1600, 20)]).await;
    assert!(matches!(scheduler.next().await.unwrap(), Message::Begun(_)));
    scheduler.admit(2, vec![sequence(2, 4, 1), sequence(3, 4, 1)]).await;
    while engine.snapshot().await.inbox < 2 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    engine.shutdown.drain.cancel();
    assert!(health(&engine.url, "draining").await && health(&engine.url, "live").await);
    assert!(!health(&engine.url, "ready").await);
    let refused = Scheduler::dial(Endpoint::from_shared(engine.url.clone()).unwrap(), 2).await;
    assert_eq!(refused.err().unwrap().code(), Code::Unavailable);

    // On its way before the scheduler has heard of it.
    scheduler.admit(3, vec![sequence(4, 4, 1)]).await;
    let (mut told, mut ends, mut begun) = (false, Vec::new(), Vec::new());
    let status = loop {
        match scheduler.next().await {
            Ok(Message::Draining(_)) => told = true,
            Ok(Message::Begun(message)) => begun.push(message.seq),
            Ok(Message::Step(step)) => {
                let rows = step.handles.into_iter().zip(step.ends);
                ends.extend(rows.filter(|&(_, end)| end != RowEnd::None as i32).map(|row| (row, told)));
            }
            Ok(other) => panic!("{other:?}"),
            Err(status) => break status,
        }
    };
    let back = RowEnd::Preempted as i32;
    ends[..2].sort_unstable();
    assert_eq!(
        ends,
        [((2, back), true), ((3, back), true), ((4, back), true), ((1, RowEnd::Length as i32), true)]
    );
    assert_eq!(begun, [2, 3], "nothing of them is left to begin");
    assert_eq!(status.code(), Code::Unavailable);
    finished(engine).await;
}

#[tokio::test]
async fn stopping_does_not_wait_for_what_runs() {
    let engine = Engine::start(Setup { cost: forwards_of(20), ..Setup::default() }).await;
    let (mut scheduler, _) = Scheduler::attach(&engine, 1).await;
    scheduler.admit(1, vec![sequence(1, 40, 4000)]).await;
    while scheduler.next_step().await.handles.is_empty() {}
    engine.shutdown.drain.cancel();
    engine.shutdown.stop.cancel();
    while scheduler.next().await.is_ok() {}
    finished(engine).await;
}

async fn finished(mut engine: Engine) {
    (&mut engine.serving).await.unwrap().unwrap();
}

async fn health(url: &str, service: &str) -> bool {
    let channel = Endpoint::from_shared(url.to_owned()).unwrap().connect().await.unwrap();
    let request = HealthCheckRequest { service: service.into() };
    // The reporter is told a moment after the token.
    tokio::time::sleep(Duration::from_millis(20)).await;
    HealthClient::new(channel).check(request).await.unwrap().into_inner().status == 1
}
