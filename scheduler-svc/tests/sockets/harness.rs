//! A scheduler and its engines in this process, on loopback, and a client of theirs.

use std::{net::SocketAddr, path::Path, time::Duration};

use clap::Parser as _;
use engine_svc::{
    backend::{
        KvGeometry,
        sim::{SimBackend, SimConfig},
    },
    service::server::{Live, ServerConfig},
    step::{Snapshot, StepHandle},
};
use firstlight_proto::{
    clock::Clock,
    inject::{Injections, loss::Share},
    serve::{health::HealthListen, shutdown::Shutdown},
    v1::{
        self, admin_client::AdminClient, generate_response::Event, inference_client::InferenceClient,
        telemetry_client::TelemetryClient,
    },
};
use firstlight_sim::{cost::CostModel, planner::Limits};
use scheduler_svc::{
    cli::Cli,
    server::{self, Running},
};
use tonic::{Status, Streaming, transport::Channel};

/// Nothing in these tests takes this long; what does is stuck.
pub const STUCK: Duration = Duration::from_secs(60);
/// Ids of the tiny vocabulary are below this.
pub const VOCAB: u32 = 272;

/// Forwards of about this many milliseconds, whatever they hold.
pub fn forwards_of(ms: f64) -> CostModel {
    CostModel {
        prefill_base_us: ms * 1e3,
        prefill_row_us: 0.0,
        prefill_token_us: 0.0,
        decode_base_us: ms * 1e3,
        decode_row_us: 0.0,
        prefill_attend_us: 0.0,
        decode_attend_us: 0.0,
        ..CostModel::default()
    }
}

/// What an engine is started with.
pub struct Setup {
    pub name: &'static str,
    pub cost: CostModel,
    pub blocks: usize,
    pub mixed: bool,
}

impl Default for Setup {
    fn default() -> Self {
        Self { name: "e", cost: forwards_of(1.0), blocks: 4_096, mixed: false }
    }
}

pub struct Engine {
    pub addr: SocketAddr,
    step: StepHandle,
    shutdown: Shutdown,
}

impl Engine {
    pub async fn start(name: &'static str, cost: CostModel) -> Self {
        Self::set_up(Setup { name, cost, ..Setup::default() }).await
    }

    pub async fn set_up(setup: Setup) -> Self {
        Self::at("127.0.0.1:0".parse().unwrap(), setup).await.unwrap()
    }

    /// At this address; an error while it is taken.
    pub async fn at(listen: SocketAddr, setup: Setup) -> anyhow::Result<Self> {
        let shutdown = Shutdown::default();
        let config = ServerConfig {
            name: setup.name.into(),
            listen,
            tls: None,
            health: HealthListen::default(),
            clock: Clock::new(),
            limits: Limits { max_batch_size: 64, step_prefill_tokens: 2048, decode_first: false },
            max_sequences: 256,
            mixed: setup.mixed,
            draft_tokens: 0,
            stall_limit: STUCK,
            injections: Injections::default(),
            drop_spans: Share::default(),
            tells: true,
        };
        let backend = SimBackend::new(SimConfig {
            model_name: "tiny".into(),
            vocab_size: VOCAB as usize,
            context_length: 40_000,
            eos_id: 0,
            eos_one_in: 0,
            kv: KvGeometry { block_tokens: 16, blocks: setup.blocks, block_bytes: 0 },
            cost: setup.cost,
        });
        let live = Live::listen(config, shutdown.clone()).await?;
        let ready = live.ready(Box::new(backend)).await?;
        let (addr, step) = (ready.addr(), ready.step().clone());
        tokio::spawn(ready.serve());
        Ok(Self { addr, step, shutdown })
    }

    /// As at SIGTERM.
    pub fn drain(&self) {
        self.shutdown.drain.cancel();
    }

    pub async fn snapshot(&self) -> Snapshot {
        let snapshot = self.step.snapshot().await.expect("the step loop is gone");
        assert_eq!(snapshot.integrity, None);
        snapshot
    }

    /// Waits until nothing is in the engine, and checks that every block is free.
    pub async fn comes_to_rest(&self) {
        let rest = until("the engine comes to rest", async || {
            let now = self.snapshot().await;
            ((now.active, now.inbox) == (0, 0)).then_some(now)
        });
        let rest = rest.await;
        assert_eq!(rest.free_blocks, rest.total_blocks);
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.shutdown.stop.cancel();
    }
}

pub struct Scheduler {
    pub running: Running,
    pub shutdown: Shutdown,
    pub channel: Channel,
}

impl Scheduler {
    /// Starts one with these further flags and waits until it has as many engines.
    pub async fn start(engines: &[SocketAddr], flags: &[&str]) -> Self {
        let vocabulary = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/golden/tiny-llama");
        let mut args = vec!["scheduler-svc".to_owned(), "--model".into(), vocabulary.display().to_string()];
        for listen in ["--listen", "--admin-listen"] {
            args.extend([listen.to_owned(), "127.0.0.1:0".into()]);
        }
        args.extend(engines.iter().flat_map(|addr| ["--engine".to_owned(), addr.to_string()]));
        args.extend(flags.iter().map(|flag| (*flag).to_owned()));
        let shutdown = Shutdown::default();
        let running = server::start(Cli::parse_from(args).serve, shutdown.clone()).await.unwrap();
        let channel = connect(running.addr).await;
        let scheduler = Self { running, shutdown, channel };
        scheduler.has_engines(engines.len()).await;
        scheduler
    }

    pub fn client(&self) -> InferenceClient<Channel> {
        InferenceClient::new(self.channel.clone())
    }

    pub fn telemetry(&self) -> TelemetryClient<Channel> {
        TelemetryClient::new(self.channel.clone())
    }

    pub async fn admin(&self) -> AdminClient<Channel> {
        AdminClient::new(connect(self.running.admin_addr).await)
    }

    pub async fn has_engines(&self, n: usize) {
        let served = self.running.dispatcher.served();
        until("the engines attach", async || (served.borrow().engines == n).then_some(())).await;
    }

    pub async fn in_flight(&self) -> usize {
        self.running.dispatcher.with(|dispatch| dispatch.in_flight()).await.unwrap()
    }

    /// Generates to the end.
    pub async fn complete(&self, request: v1::GenerateRequest) -> Result<Output, Status> {
        collect(self.client().generate(request).await?.into_inner()).await
    }

    /// One number of the core.
    pub async fn active(&self) -> u32 {
        self.running.dispatcher.with(|dispatch| dispatch.dump().gauges.active).await.unwrap()
    }
}

impl Drop for Scheduler {
    fn drop(&mut self) {
        self.shutdown.stop.cancel();
    }
}

/// All that one stream said.
#[derive(Clone, Debug, Default)]
pub struct Output {
    pub ids: Vec<u32>,
    pub text: String,
    pub emitted: Vec<i64>,
    pub messages: usize,
    pub finished: v1::Finished,
}

impl Output {
    pub fn timeline(&self) -> &v1::Timeline {
        self.finished.timeline.as_ref().expect("a timeline")
    }

    pub fn scheduler(&self) -> &v1::SchedulerTimeline {
        self.timeline().scheduler.as_ref().expect("the scheduler's timeline")
    }

    pub fn engine(&self) -> &v1::EngineTimeline {
        self.timeline().engine.as_ref().expect("the engine's timeline")
    }
}

pub async fn collect(mut stream: Streaming<v1::GenerateResponse>) -> Result<Output, Status> {
    let mut output = Output::default();
    let all = async {
        while let Some(message) = stream.message().await? {
            match message.event.expect("an event") {
                Event::Tokens(tokens) => {
                    output.messages += 1;
                    output.ids.extend(tokens.ids);
                    output.emitted.extend(tokens.emit_ns);
                    output.text += &tokens.text;
                }
                Event::Finished(finished) => {
                    output.text += &finished.text;
                    output.finished = finished;
                }
            }
        }
        Ok::<_, Status>(())
    };
    tokio::time::timeout(STUCK, all).await.expect("the stream is stuck")?;
    Ok(output)
}

/// Reads one message of a stream that goes on.
pub async fn next(stream: &mut Streaming<v1::GenerateResponse>) {
    let message = tokio::time::timeout(STUCK, stream.message()).await.expect("the stream is stuck");
    message.unwrap().expect("it goes on");
}

pub async fn connect(addr: SocketAddr) -> Channel {
    Channel::from_shared(format!("http://{addr}")).unwrap().connect().await.unwrap()
}

/// A request for `n` tokens, sampled with `seed`, that no EOS ends.
pub fn ask(n: u32, seed: u64) -> v1::GenerateRequest {
    v1::GenerateRequest {
        prompt: Some(v1::generate_request::Prompt::Text(format!("prompt {seed}"))),
        max_new_tokens: n,
        sampling: Some(v1::Sampling { temperature: 1.0, seed: Some(seed), ..Default::default() }),
        stop: Some(v1::Stop { ignore_eos: true, ..Default::default() }),
        ..Default::default()
    }
}

/// Looks again and again until `look` finds something.
pub async fn until<T>(what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let found = async {
        loop {
            if let Some(found) = look().await {
                return found;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(STUCK, found).await.unwrap_or_else(|_| panic!("stuck: {what}"))
}
