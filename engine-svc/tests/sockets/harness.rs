//! An engine in this process, and a scheduler that speaks to it over loopback.

use std::{collections::HashMap, time::Duration};

use engine_svc::{
    backend::{
        Backend, KvGeometry,
        sim::{SimBackend, SimConfig},
    },
    service::server::{Live, ServerConfig},
    step::{Snapshot, StepHandle},
};
use firstlight_proto::{
    clock::Clock,
    inject::{Injection, Injections, loss::Share},
    serve::{health::HealthListen, shutdown::Shutdown},
    v1::{
        Admit, Cancel, EngineMessage, Hello, Open, RowEnd, SchedulerMessage, Sequence, SetLimits, Step,
        engine_client::EngineClient, engine_message, scheduler_message,
    },
};
use firstlight_sim::{cost::CostModel, planner::Limits};
use tokio::{sync::mpsc, task::JoinHandle};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{
    Status, Streaming,
    transport::{Channel, Endpoint},
};

/// Nothing in these tests takes this long; what does is stuck.
const STUCK: Duration = Duration::from_secs(30);

pub const LIMITS: SetLimits = SetLimits { max_batch_size: 8, step_prefill_tokens: 64, decode_first: false };

/// What an engine is started with.
pub struct Setup {
    pub blocks: usize,
    pub cost: CostModel,
    pub stall_limit: Duration,
    pub inject: Vec<&'static str>,
    pub mixed: bool,
}

impl Default for Setup {
    fn default() -> Self {
        Self { blocks: 256, cost: CostModel::free(), stall_limit: STUCK, inject: vec![], mixed: false }
    }
}

impl Setup {
    pub fn backend(&self) -> SimBackend {
        SimBackend::new(SimConfig {
            model_name: "sim".into(),
            vocab_size: 1000,
            context_length: 4096,
            eos_id: 2,
            eos_one_in: 0,
            kv: KvGeometry { block_tokens: 16, blocks: self.blocks, block_bytes: 0 },
            cost: self.cost.clone(),
        })
    }
}

/// Forwards of about this many milliseconds, whatever they hold.
pub fn forwards_of(ms: u32) -> CostModel {
    let us = f64::from(ms) * 1e3;
    CostModel {
        prefill_base_us: us,
        prefill_row_us: 0.0,
        prefill_token_us: 0.0,
        decode_base_us: us,
        decode_row_us: 0.0,
        prefill_attend_us: 0.0,
        decode_attend_us: 0.0,
        ..CostModel::default()
    }
}

pub struct Engine {
    pub url: String,
    pub step: StepHandle,
    pub shutdown: Shutdown,
    pub serving: JoinHandle<anyhow::Result<()>>,
}

impl Engine {
    pub async fn start(setup: Setup) -> Self {
        let backend = setup.backend();
        Self::with(setup, Box::new(backend)).await.unwrap()
    }

    /// With a backend that is not of `setup`.
    pub async fn with(setup: Setup, backend: Box<dyn Backend>) -> anyhow::Result<Self> {
        let shutdown = Shutdown::default();
        let inject = setup.inject.iter().map(|text| text.parse::<Injection>().unwrap()).collect();
        let config = ServerConfig {
            name: "engine".into(),
            listen: "127.0.0.1:0".parse().unwrap(),
            tls: None,
            health: HealthListen::default(),
            clock: Clock::new(),
            limits: Limits { max_batch_size: 8, step_prefill_tokens: 64, decode_first: false },
            max_sequences: 64,
            mixed: setup.mixed,
            draft_tokens: 0,
            stall_limit: setup.stall_limit,
            injections: Injections::new(inject),
            drop_spans: Share::default(),
            tells: true,
        };
        let live = Live::listen(config, shutdown.clone()).await?;
        let ready = live.ready(backend).await?;
        let (url, step) = (format!("http://{}", ready.addr()), ready.step().clone());
        let serving = tokio::spawn(ready.serve());
        Ok(Self { url, step, shutdown, serving })
    }

    pub async fn snapshot(&self) -> Snapshot {
        let snapshot = self.step.snapshot().await.expect("the step loop is gone");
        assert_eq!(snapshot.integrity, None);
        snapshot
    }

    /// Waits until nothing is in the engine, and checks that every block is free.
    pub async fn comes_to_rest(&self) {
        let rest = async {
            loop {
                let now = self.snapshot().await;
                if (now.active, now.inbox) == (0, 0) {
                    return now;
                }
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        let rest = tokio::time::timeout(STUCK, rest).await.expect("the engine does not come to rest");
        assert_eq!(rest.free_blocks, rest.total_blocks);
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.shutdown.stop.cancel();
    }
}

/// One attachment.
pub struct Scheduler {
    pub attachment: u64,
    pub to_engine: mpsc::Sender<SchedulerMessage>,
    pub from_engine: Streaming<EngineMessage>,
}

/// What one handle's rows said.
#[derive(Debug, Default, Clone, PartialEq)]
pub struct Output {
    pub tokens: Vec<u32>,
    pub end: Option<RowEnd>,
}

impl Scheduler {
    pub async fn attach(engine: &Engine, attachment: u64) -> (Self, Hello) {
        Self::attach_over(Endpoint::from_shared(engine.url.clone()).unwrap(), attachment).await
    }

    /// To an engine of whatever kind at `url`.
    pub async fn attach_at(url: &str) -> Self {
        Self::attach_over(Endpoint::from_shared(url.to_owned()).unwrap(), 1).await.0
    }

    /// With as little room on the way as HTTP/2 allows.
    pub async fn attach_with_a_small_window(engine: &Engine, attachment: u64) -> (Self, Hello) {
        let endpoint = Endpoint::from_shared(engine.url.clone()).unwrap();
        Self::attach_over(endpoint.initial_stream_window_size(1024), attachment).await
    }

    async fn attach_over(endpoint: Endpoint, attachment: u64) -> (Self, Hello) {
        let mut scheduler = Self::dial(endpoint, attachment).await.unwrap();
        scheduler.open(Some(LIMITS)).await;
        match scheduler.next().await.unwrap() {
            engine_message::Message::Hello(hello) => (scheduler, hello),
            other => panic!("not greeted but told {other:?}"),
        }
    }

    /// A stream that is not open yet.
    pub async fn dial(endpoint: Endpoint, attachment: u64) -> Result<Self, Status> {
        let channel: Channel = endpoint.connect().await.unwrap();
        let (to_engine, messages) = mpsc::channel(64);
        let attached = EngineClient::new(channel).attach(ReceiverStream::new(messages)).await?;
        Ok(Self { attachment, to_engine, from_engine: attached.into_inner() })
    }

    pub async fn open(&self, limits: Option<SetLimits>) {
        self.send(scheduler_message::Message::Open(Open { scheduler: "test".into(), limits })).await;
    }

    pub async fn send(&self, message: scheduler_message::Message) {
        let message = SchedulerMessage { attachment: self.attachment, message: Some(message) };
        self.to_engine.send(message).await.unwrap();
    }

    pub async fn admit(&self, seq: u64, sequences: Vec<Sequence>) {
        self.send(scheduler_message::Message::Admit(Admit { seq, sequences })).await;
    }

    pub async fn cancel(&self, handles: &[u32]) {
        self.send(scheduler_message::Message::Cancel(Cancel { handles: handles.to_vec() })).await;
    }

    /// The next message, whatever it is.
    pub async fn next(&mut self) -> Result<engine_message::Message, Status> {
        let message = tokio::time::timeout(STUCK, self.from_engine.message()).await.expect("no message");
        let message = message?.ok_or_else(|| Status::ok("the stream has ended"))?;
        assert_eq!(message.attachment, self.attachment);
        Ok(message.message.expect("a message"))
    }

    /// The next `Step`; what comes before it is left out.
    pub async fn next_step(&mut self) -> Step {
        loop {
            if let engine_message::Message::Step(step) = self.next().await.unwrap() {
                return step;
            }
        }
    }

    /// Reads until each of `handles` has ended; returns what they said and every `Step` read.
    pub async fn outputs(&mut self, handles: &[u32]) -> (HashMap<u32, Output>, Vec<Step>) {
        let mut outputs: HashMap<u32, Output> = HashMap::new();
        let mut steps = Vec::new();
        let ended = |outputs: &HashMap<u32, Output>| {
            handles.iter().all(|handle| outputs.get(handle).is_some_and(|output| output.end.is_some()))
        };
        while !ended(&outputs) {
            let step = self.next_step().await;
            add(&mut outputs, &step);
            steps.push(step);
        }
        (outputs, steps)
    }
}

/// Adds the rows of `step` to what each handle said.
pub fn add(outputs: &mut HashMap<u32, Output>, step: &Step) {
    for (i, &handle) in step.handles.iter().enumerate() {
        let output = outputs.entry(handle).or_default();
        assert_eq!(output.end, None, "handle {handle} goes on after its end");
        let end = RowEnd::try_from(step.ends[i]).unwrap();
        if !matches!(end, RowEnd::Preempted | RowEnd::Cancelled | RowEnd::Failed) {
            output.tokens.push(step.token_ids[i]);
        }
        output.end = (end != RowEnd::None).then_some(end);
    }
}

/// A prompt of `len` tokens that no other handle shares.
pub fn sequence(handle: u32, len: u32, max_new_tokens: u32) -> Sequence {
    Sequence {
        handle,
        request_id: format!("request-{handle}"),
        run_label: "run".into(),
        token_ids: (0..len).map(|i| 3 + (handle * 101 + i) % 900).collect(),
        max_new_tokens,
        ..Sequence::default()
    }
}
