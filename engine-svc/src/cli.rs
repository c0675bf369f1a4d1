//! Flags of `engine-svc`. Each can be given as an environment variable too.

use std::{net::SocketAddr, num::NonZero, path::PathBuf, time::Duration};

use anyhow::{Context as _, bail};
use clap::{Args, Parser, Subcommand, ValueEnum};
use firstlight_cuda::source::Number;
use firstlight_proto::{
    clock::{Clock, Drift},
    inject::{Injection, Injections, loss::Share},
    serve::{
        health::{HealthListen, Healthcheck},
        listen::ServerTls,
        logging::LogFormat,
    },
};
use firstlight_sim::planner::Limits;

use crate::{
    backend::{
        KvGeometry,
        options::{CpuOptions, CudaOptions, Dtype, LinearKernels, Quantize},
        sim::SimConfig,
    },
    service::server::ServerConfig,
    weights::LoadFormat,
};

pub mod gpu;
pub mod sim;

pub use gpu::GpuArgs;
pub use sim::SimArgs;

/// Tokens per KV block.
pub const BLOCK_TOKENS: usize = 16;
/// Tokens of the KV pool where no flag says so.
const DEFAULT_KV_TOKENS: usize = 40_960;

/// Serves a language model to schedulers: token ids in, token ids out, over one Attach stream each.
///
/// Start one with a model file, then point scheduler-svc at it with `--engine HOST:PORT`.
#[derive(Debug, Parser)]
#[command(version, args_conflicts_with_subcommands = true)]
pub struct Cli {
    /// What to do instead of serving.
    #[command(subcommand)]
    pub command: Option<Task>,
    /// How to serve.
    #[command(flatten)]
    pub serve: Serve,
}

/// What to do instead of serving.
#[derive(Debug, Subcommand)]
pub enum Task {
    /// Asks a running engine for its health and exits 0 when it is SERVING.
    Healthcheck(Healthcheck),
    /// Lists every metric that it exports.
    Metrics,
}

/// How to serve.
#[derive(Debug, Args)]
pub struct Serve {
    /// What to execute.
    #[command(flatten)]
    pub model: ModelArgs,
    /// The cost model, with `--backend sim`.
    #[command(flatten)]
    pub sim: SimArgs,
    /// The GPU, with `--backend cuda`.
    #[command(flatten)]
    pub gpu: GpuArgs,
    /// Sizes.
    #[command(flatten)]
    pub capacity: CapacityArgs,
    /// Addresses, logs, shutdown.
    #[command(flatten)]
    pub service: ServiceArgs,
}

/// What executes the model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum BackendKind {
    /// The model, on the CPU.
    Cpu,
    /// The model, on an NVIDIA GPU of compute capability 8.0 or later; only in builds with the feature cuda.
    Cuda,
    /// No model: forwards take the time a cost model says, tokens are made up. For load tests.
    Sim,
}

/// What to execute.
#[derive(Debug, Args)]
#[command(next_help_heading = "Model")]
pub struct ModelArgs {
    /// A GGUF file, a Hugging Face folder, a hub id, or with --load-format dummy the name of a config.
    ///
    /// A hub id is owner/name[@revision][:file.gguf]; what the cache of Hugging Face's tools lacks is fetched.
    #[arg(long, env = "FIRSTLIGHT_MODEL", value_name = "PATH")]
    pub model: Option<PathBuf>,
    /// Name told to clients; by default the hub id, or the one in the model's own files.
    #[arg(long, env = "FIRSTLIGHT_MODEL_NAME", value_name = "NAME")]
    pub model_name: Option<String>,
    /// What --model points at.
    #[arg(long, env = "FIRSTLIGHT_LOAD_FORMAT", value_enum, default_value_t)]
    pub load_format: LoadFormat,
    /// How weights and activations are held.
    #[arg(long, env = "FIRSTLIGHT_DTYPE", value_enum, default_value_t)]
    pub dtype: Dtype,
    /// Store the weights smaller than the file has them.
    #[arg(long, env = "FIRSTLIGHT_QUANTIZE", value_enum)]
    pub quantize: Option<Quantize>,
    /// What executes the model.
    #[arg(long, alias = "device", env = "FIRSTLIGHT_BACKEND", value_enum, default_value = "cpu")]
    pub backend: BackendKind,
    /// What multiplies, with --backend cpu.
    #[arg(long, env = "FIRSTLIGHT_LINEAR", value_enum, default_value_t)]
    pub linear: LinearKernels,
    /// Threads that execute a forward; by default one per core.
    #[arg(long, env = "FIRSTLIGHT_THREADS", value_name = "N")]
    pub threads: Option<usize>,
    /// Seed of --load-format dummy.
    #[arg(long, env = "FIRSTLIGHT_SEED", value_name = "N", default_value_t = 0)]
    pub seed: u64,
}

/// Sizes.
#[derive(Debug, Args)]
#[command(next_help_heading = "Capacity")]
pub struct CapacityArgs {
    /// Tokens whose keys and values fit in memory, over all sequences; rounded up to blocks of 16.
    ///
    /// By default 40960; with --backend cuda, as many as the GPU's memory holds.
    #[arg(long, env = "FIRSTLIGHT_KV_TOKENS", value_name = "TOKENS")]
    pub kv_tokens: Option<usize>,
    /// The same in blocks of 16 tokens.
    #[arg(long, env = "FIRSTLIGHT_KV_BLOCKS", value_name = "BLOCKS", conflicts_with = "kv_tokens")]
    pub kv_blocks: Option<usize>,
    /// Most sequences at work at once; the rest waits in the inbox.
    #[arg(long, env = "FIRSTLIGHT_MAX_SEQUENCES", value_name = "N", default_value_t = 1024)]
    pub max_sequences: usize,
    /// Longest prompt plus output, in tokens; by default what the model was made for.
    #[arg(long, env = "FIRSTLIGHT_CONTEXT_LENGTH", value_name = "TOKENS")]
    pub context_length: Option<usize>,
    /// Put prompt and decode rows into one forward per step instead of one each.
    #[arg(long, env = "FIRSTLIGHT_MIXED")]
    pub mixed: bool,
    /// Guess up to N tokens ahead from what a request said before, and check them in the same forward; 0 = off.
    ///
    /// Pays where text repeats itself (code, extraction, summaries) and few requests are active. Tokens stay the
    /// same, and so does their order; several may arrive in one message.
    #[arg(long, env = "FIRSTLIGHT_DRAFT_TOKENS", value_name = "N", default_value_t = 0)]
    pub draft_tokens: usize,
}

/// Addresses, logs, shutdown.
#[derive(Debug, Args)]
#[command(next_help_heading = "Service")]
pub struct ServiceArgs {
    /// Where schedulers attach; port 0 takes a free one. Without --tls-client-ca there is no login: keep it private.
    #[arg(long, env = "FIRSTLIGHT_LISTEN", value_name = "HOST:PORT", default_value = "127.0.0.1:7071")]
    pub listen: SocketAddr,
    /// TLS for schedulers.
    #[command(flatten)]
    pub tls: ServerTls,
    /// Health in the clear.
    #[command(flatten)]
    pub health: HealthListen,
    /// Where Prometheus reads /metrics.
    #[arg(
        long,
        env = "FIRSTLIGHT_METRICS_LISTEN",
        value_name = "HOST:PORT",
        default_value = "127.0.0.1:9071"
    )]
    pub metrics_listen: SocketAddr,
    /// Name of this engine, unique among a scheduler's engines; by default hostname:port.
    #[arg(long, env = "FIRSTLIGHT_NAME", value_name = "NAME", default_value = "", hide_default_value = true)]
    pub name: String,
    /// After SIGTERM, how long sequences that have begun may go on. A second signal stops at once.
    #[arg(long, env = "FIRSTLIGHT_DRAIN_SECONDS", value_name = "SECONDS", default_value_t = 30.0)]
    pub drain_seconds: f64,
    /// End an attachment whose scheduler has read nothing for this long.
    #[arg(long, env = "FIRSTLIGHT_STALL_SECONDS", value_name = "SECONDS", default_value_t = 10.0)]
    pub stall_seconds: f64,
    /// What to log: a level, or a filter such as engine_svc=debug,warn.
    #[arg(long, env = "FIRSTLIGHT_LOG", value_name = "FILTER", default_value = "info")]
    pub log: String,
    /// How log lines look.
    #[arg(long, env = "FIRSTLIGHT_LOG_FORMAT", value_enum, default_value_t)]
    pub log_format: LogFormat,
    /// Test of the breakdown: add a known delay (engine_wait, prefill, return).
    #[arg(long, value_name = "SEGMENT=MS", hide = true)]
    pub inject_delay: Vec<Injection>,
    /// Test of the breakdown: lose the spans of this share of requests, 0 to 1.
    #[arg(long, value_name = "SHARE", default_value = "0", hide = true)]
    pub drop_spans: Share,
    /// Tell nothing of sequences: no metrics, no spans, no timelines. To measure what telling costs.
    #[arg(long, hide = true)]
    pub no_telemetry: bool,
    /// Test of the breakdown: a clock that runs too fast by this much.
    #[arg(long, value_name = "PPM", default_value_t, hide = true, allow_hyphen_values = true)]
    pub clock_drift: Drift,
}

impl Serve {
    /// The shell's configuration.
    ///
    /// # Errors
    /// Names the flag that is out of range.
    pub fn server(&self) -> anyhow::Result<ServerConfig> {
        if self.capacity.max_sequences == 0 {
            bail!("--max-sequences 0: at least 1");
        }
        Ok(ServerConfig {
            name: self.service.name.clone(),
            listen: self.service.listen,
            tls: self.service.tls.acceptor().context("TLS for schedulers")?,
            health: self.service.health,
            clock: Clock::with_drift(self.service.clock_drift),
            limits: Limits { max_batch_size: 64, step_prefill_tokens: 512, decode_first: false },
            max_sequences: self.capacity.max_sequences,
            mixed: self.capacity.mixed,
            draft_tokens: self.capacity.draft_tokens,
            stall_limit: seconds("--stall-seconds", self.service.stall_seconds)?,
            injections: Injections::new(self.service.inject_delay.clone()),
            drop_spans: self.service.drop_spans,
            tells: !self.service.no_telemetry,
        })
    }

    /// How long a drain may take.
    ///
    /// # Errors
    /// When it is negative or absurd.
    pub fn drain_limit(&self) -> anyhow::Result<Duration> {
        seconds("--drain-seconds", self.service.drain_seconds)
    }

    /// How to load a model for this machine's cores.
    ///
    /// # Errors
    /// Names the flag that is out of range.
    pub fn cpu(&self) -> anyhow::Result<CpuOptions> {
        if self.model.quantize.is_some() && self.model.linear == LinearKernels::Torch {
            bail!("--quantize with --linear torch: libtorch multiplies bf16 and f32 only");
        }
        if self.model.dtype == Dtype::F16 {
            bail!("--dtype f16 with --backend cpu: bf16 or f32");
        }
        let cores = || std::thread::available_parallelism().map_or(1, NonZero::get);
        Ok(CpuOptions {
            dtype: self.model.dtype,
            quantize: self.model.quantize,
            linear: self.model.linear,
            threads: match self.model.threads {
                Some(0) => bail!("--threads 0: at least 1"),
                Some(threads) => threads,
                None => cores(),
            },
            kv_blocks: self.capacity.blocks()?,
            context_length: self.capacity.context_length,
        })
    }

    /// How to load a model onto a GPU.
    ///
    /// # Errors
    /// Names the flag that is out of range.
    pub fn cuda(&self) -> anyhow::Result<CudaOptions> {
        if self.model.quantize.is_some() {
            bail!("--quantize with --backend cuda: weights are held in 16 bits there");
        }
        if !(0.0..=1.0).contains(&self.gpu.kv_memory_fraction) {
            bail!("--kv-memory-fraction {}: between 0 and 1", self.gpu.kv_memory_fraction);
        }
        if !(1..=1024).contains(&self.gpu.graph_rows) {
            bail!("--graph-rows {}: between 1 and 1024", self.gpu.graph_rows);
        }
        Ok(CudaOptions {
            number: match self.model.dtype {
                Dtype::Auto | Dtype::Bf16 => Number::Bf16,
                Dtype::F16 => Number::F16,
                Dtype::F32 => bail!("--dtype f32 with --backend cuda: bf16 or f16"),
            },
            kv_blocks: self.capacity.asked_blocks()?,
            kv_memory_fraction: self.gpu.kv_memory_fraction,
            context_length: self.capacity.context_length,
            decode_rows: self.gpu.graph_rows,
            graphs: !self.gpu.no_graph,
            batch_invariant: self.gpu.batch_invariant,
            nvtx: self.gpu.nvtx,
        })
    }

    /// What the sim pretends to be.
    ///
    /// # Errors
    /// Names the flag that is out of range.
    pub fn sim(&self) -> anyhow::Result<SimConfig> {
        let sim = &self.sim;
        if sim.sim_vocab_size < 2 || sim.sim_eos_id as usize >= sim.sim_vocab_size {
            bail!("--sim-eos-id {} must be below --sim-vocab-size {}", sim.sim_eos_id, sim.sim_vocab_size);
        }
        Ok(SimConfig {
            model_name: self.model.model_name.clone().unwrap_or_else(|| "sim".to_owned()),
            vocab_size: sim.sim_vocab_size,
            context_length: self.capacity.context_length.unwrap_or(8192),
            eos_id: sim.sim_eos_id,
            eos_one_in: sim.sim_eos_one_in,
            kv: KvGeometry { block_tokens: BLOCK_TOKENS, blocks: self.capacity.blocks()?, block_bytes: 0 },
            cost: sim.cost(),
        })
    }
}

impl CapacityArgs {
    /// KV blocks in the pool.
    ///
    /// # Errors
    /// When there would be none.
    pub fn blocks(&self) -> anyhow::Result<usize> {
        Ok(self.asked_blocks()?.unwrap_or(DEFAULT_KV_TOKENS / BLOCK_TOKENS))
    }

    /// The same, where the flags say so.
    ///
    /// # Errors
    /// When there would be none.
    pub fn asked_blocks(&self) -> anyhow::Result<Option<usize>> {
        let blocks = self.kv_blocks.or(self.kv_tokens.map(|tokens| tokens.div_ceil(BLOCK_TOKENS)));
        match blocks {
            None | Some(1..0x1000_0000) => Ok(blocks),
            Some(blocks) => bail!("{blocks} KV blocks; give --kv-tokens between 1 and 4e9"),
        }
    }
}

fn seconds(flag: &str, value: f64) -> anyhow::Result<Duration> {
    Duration::try_from_secs_f64(value).with_context(|| format!("{flag} {value}"))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_flags_are_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn tokens_are_rounded_up_to_blocks() {
        let cli = Cli::try_parse_from(["engine-svc", "--backend", "sim", "--kv-tokens", "17"]).unwrap();
        assert_eq!(cli.serve.capacity.blocks().unwrap(), 2);
        let by_default = Cli::try_parse_from(["engine-svc", "--backend", "sim"]).unwrap();
        assert_eq!(by_default.serve.sim().unwrap().kv.blocks, 2560);
        let none = Cli::try_parse_from(["engine-svc", "--backend", "sim", "--kv-blocks", "0"]).unwrap();
        assert!(none.serve.capacity.blocks().is_err());
    }
}
