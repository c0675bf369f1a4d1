//! Flags, each also an environment variable `FIRSTLIGHT_…`.

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use clap::{Args, Parser, Subcommand};
use firstlight_proto::{
    clock::Drift,
    inject::{Injection, loss::Share},
    serve::{
        health::{HealthListen, Healthcheck},
        listen::ServerTls,
        logging::LogFormat,
        tls::{Dialer, Identity, TlsError},
    },
    v1,
};

use crate::engines::Roster;

/// Serves a language model over gRPC: queues requests, admits them to engines within a budget, streams text,
/// and tells where every millisecond before the first token went.
#[derive(Debug, Parser)]
#[command(version, args_conflicts_with_subcommands = true)]
pub struct Cli {
    /// Something else than serving.
    #[command(subcommand)]
    pub command: Option<Command>,
    /// Flags of the service.
    #[command(flatten)]
    pub serve: Flags,
}

/// Something else than serving.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Ask a running scheduler for its health; exits 0 when it is SERVING.
    Healthcheck(Healthcheck),
    /// List every metric that it exports.
    Metrics,
}

/// Flags of the service.
#[derive(Args, Clone, Debug)]
pub struct Flags {
    /// An engine to dial; repeatable (in the environment: separated by commas).
    #[arg(long, value_name = "HOST:PORT", env = "FIRSTLIGHT_ENGINE", value_delimiter = ',')]
    pub engine: Vec<String>,
    /// A name whose every address is an engine, such as a headless service.
    #[arg(long, value_name = "NAME:PORT", env = "FIRSTLIGHT_ENGINE_DNS", conflicts_with = "engine")]
    pub engine_dns: Option<String>,
    /// Seconds between look-ups of --engine-dns.
    #[arg(long, value_name = "SECONDS", env = "FIRSTLIGHT_ENGINE_DNS_SECONDS", default_value_t = 5.0)]
    pub engine_dns_seconds: f64,

    /// Vocabulary: a GGUF file, a folder with tokenizer.json, that file, or a hub id as for engine-svc. Without
    /// it, prompts are token ids.
    #[arg(long, value_name = "PATH", env = "FIRSTLIGHT_MODEL")]
    pub model: Option<PathBuf>,
    /// Name of the model in requests; by default the engine's word.
    #[arg(long, value_name = "NAME", env = "FIRSTLIGHT_MODEL_NAME")]
    pub model_name: Option<String>,

    /// gRPC for clients.
    #[arg(long, value_name = "ADDR", env = "FIRSTLIGHT_LISTEN", default_value = "127.0.0.1:7070")]
    pub listen: SocketAddr,
    /// gRPC for operators; loopback only.
    #[arg(long, value_name = "ADDR", env = "FIRSTLIGHT_ADMIN_LISTEN", default_value = "127.0.0.1:7072")]
    pub admin_listen: SocketAddr,
    /// Prometheus metrics over HTTP.
    #[arg(long, value_name = "ADDR", env = "FIRSTLIGHT_METRICS_LISTEN", default_value = "127.0.0.1:9070")]
    pub metrics_listen: SocketAddr,

    /// TLS for clients.
    #[command(flatten)]
    pub tls: ServerTls,
    /// TLS to engines.
    #[command(flatten)]
    pub engine_tls: EngineTls,
    /// Health in the clear.
    #[command(flatten)]
    pub health: HealthListen,

    /// Limits of admission.
    #[command(flatten)]
    pub budget: BudgetFlags,

    /// Replay the live arrivals under another budget and export its TTFT beside the real one: a JSON file with the
    /// fields to change, as SetBudget takes them.
    #[arg(long, value_name = "FILE", env = "FIRSTLIGHT_SHADOW_POLICY")]
    pub shadow_policy: Option<PathBuf>,

    /// Longest TTFT (request decoded to first token decoded), in ms, that counts as `ok` in the metrics.
    #[arg(long, value_name = "MS", env = "FIRSTLIGHT_SLO_TTFT", default_value_t = 1000.0)]
    pub slo_ttft: f64,
    /// Tenants (`x-tenant`) that get metrics of their own; all others count together as `other`.
    #[arg(long, value_name = "NAME,…", env = "FIRSTLIGHT_TENANTS", value_delimiter = ',')]
    pub tenants: Vec<String>,
    /// Seconds without an admission, with nothing in its way, after which readiness turns false.
    #[arg(long, value_name = "SECONDS", env = "FIRSTLIGHT_STALL_SECONDS", default_value_t = 10.0)]
    pub stall_seconds: f64,
    /// Longest drain after SIGTERM.
    #[arg(long, value_name = "SECONDS", env = "FIRSTLIGHT_DRAIN_SECONDS", default_value_t = 30.0)]
    pub drain_seconds: f64,
    /// Tokens that a client may lag behind before its request ends with RESOURCE_EXHAUSTED.
    #[arg(long, value_name = "TOKENS", env = "FIRSTLIGHT_STREAM_BUFFER", default_value_t = 1024,
          value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    pub stream_buffer: u32,

    /// Export a trace of each request over OTLP/gRPC to this collector, such as http://127.0.0.1:4317. Never blocks.
    #[arg(long, value_name = "URL", env = "FIRSTLIGHT_OTLP_ENDPOINT")]
    pub otlp_endpoint: Option<String>,

    /// What is logged, as a `tracing` filter.
    #[arg(long, value_name = "FILTER", env = "FIRSTLIGHT_LOG", default_value = "info")]
    pub log: String,
    /// How log lines look.
    #[arg(long, env = "FIRSTLIGHT_LOG_FORMAT", default_value = "auto")]
    pub log_format: LogFormat,

    /// Delay a hand-over: ingress, accept, queue_wait, dispatch, return or deliver.
    #[arg(
        long,
        value_name = "SEGMENT=MS",
        env = "FIRSTLIGHT_INJECT_DELAY",
        hide = true,
        value_delimiter = ','
    )]
    pub inject_delay: Vec<Injection>,
    /// Lose the spans of this share of requests, 0 to 1.
    #[arg(long, value_name = "SHARE", env = "FIRSTLIGHT_DROP_SPANS", hide = true, default_value = "0")]
    pub drop_spans: Share,
    /// Tell nothing of requests: no metrics, no spans, no timelines. To measure what telling costs.
    #[arg(long, env = "FIRSTLIGHT_NO_TELEMETRY", hide = true)]
    pub no_telemetry: bool,
    /// Let this process's clock run faster.
    #[arg(long, value_name = "PPM", env = "FIRSTLIGHT_CLOCK_DRIFT", hide = true, allow_hyphen_values = true,
          default_value_t = Drift::default())]
    pub clock_drift: Drift,
}

/// How engines are dialled; without an authority, in the clear. Files are read again when they change.
#[derive(Args, Clone, Debug, Default)]
pub struct EngineTls {
    /// Dial engines over TLS and trust what this authority signed (PEM).
    #[arg(long, value_name = "FILE", env = "FIRSTLIGHT_ENGINE_TLS_CA")]
    pub engine_tls_ca: Option<PathBuf>,
    /// Certificate chain to show to engines that ask for one (PEM).
    #[arg(long, value_name = "FILE", requires_all = ["engine_tls_key", "engine_tls_ca"],
          env = "FIRSTLIGHT_ENGINE_TLS_CERT")]
    pub engine_tls_cert: Option<PathBuf>,
    /// Private key of --engine-tls-cert (PEM).
    #[arg(long, value_name = "FILE", requires = "engine_tls_cert", env = "FIRSTLIGHT_ENGINE_TLS_KEY")]
    pub engine_tls_key: Option<PathBuf>,
    /// Name that engines' certificates must hold; by default the host that is dialled.
    #[arg(long, value_name = "NAME", requires = "engine_tls_ca", env = "FIRSTLIGHT_ENGINE_TLS_NAME")]
    pub engine_tls_name: Option<String>,
}

impl EngineTls {
    /// What dials engines over TLS; `None` without the flags.
    ///
    /// # Errors
    /// When the files cannot be used.
    pub fn dialer(&self) -> Result<Option<Dialer>, TlsError> {
        let Some(ca) = self.engine_tls_ca.clone() else { return Ok(None) };
        let identity = match (&self.engine_tls_cert, &self.engine_tls_key) {
            (Some(cert), Some(key)) => Some(Identity { cert: cert.clone(), key: key.clone() }),
            _ => None,
        };
        Dialer::new(ca, identity, self.engine_tls_name.clone()).map(Some)
    }
}

/// Limits of admission; what is not given has its default.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Budget")]
pub struct BudgetFlags {
    /// Requests per round.
    #[arg(long, value_name = "N", env = "FIRSTLIGHT_PREFILL_MAX_BATCH_SIZE")]
    pub prefill_max_batch_size: Option<u32>,
    /// Prompt tokens per round; a first request larger than this goes alone.
    #[arg(long, value_name = "TOKENS", env = "FIRSTLIGHT_PREFILL_MAX_TOKENS")]
    pub prefill_max_tokens: Option<u32>,
    /// Rows of one decode forward.
    #[arg(long, value_name = "ROWS", env = "FIRSTLIGHT_MAX_BATCH_SIZE")]
    pub max_batch_size: Option<u32>,
    /// Prompt tokens of one prefill forward.
    #[arg(long, value_name = "TOKENS", env = "FIRSTLIGHT_STEP_PREFILL_TOKENS")]
    pub step_prefill_tokens: Option<u32>,
    /// Requests admitted and not finished, over all engines.
    #[arg(long, value_name = "N", env = "FIRSTLIGHT_MAX_ACTIVE_REQUESTS")]
    pub max_active_requests: Option<u32>,
    /// Requests waiting; beyond it requests are refused.
    #[arg(long, value_name = "N", env = "FIRSTLIGHT_MAX_PENDING")]
    pub max_pending: Option<u32>,
    /// Decode before prefill within a step.
    #[arg(long, env = "FIRSTLIGHT_DECODE_FIRST", num_args = 0..=1, default_missing_value = "true")]
    pub decode_first: Option<bool>,
    /// fifo, pack, priority, fair, deadline or adaptive.
    #[arg(long, visible_alias = "prefill-admission-policy", value_name = "NAME", env = "FIRSTLIGHT_POLICY")]
    pub policy: Option<String>,
    /// pack: requests looked at per round.
    #[arg(
        long,
        visible_alias = "prefill-admission-lookahead",
        value_name = "N",
        env = "FIRSTLIGHT_LOOKAHEAD"
    )]
    pub lookahead: Option<u32>,
    /// pack: every n-th round is a fifo turn; 0 = never.
    #[arg(
        long,
        visible_alias = "prefill-force-fifo-every",
        value_name = "N",
        env = "FIRSTLIGHT_FORCE_FIFO_EVERY"
    )]
    pub force_fifo_every: Option<u32>,
    /// pack: a head that has waited longer, in ms, makes the next round a fifo turn; 0 = no such bound.
    #[arg(long, value_name = "MS", env = "FIRSTLIGHT_MAX_OVERTAKING_AGE_MS")]
    pub max_overtaking_age_ms: Option<u32>,
    /// reserve (prompt + max_new_tokens) or optimistic (prompt + margin).
    #[arg(long, value_name = "NAME", env = "FIRSTLIGHT_KV_PROMISE")]
    pub kv_promise: Option<String>,
    /// optimistic: tokens promised beyond the prompt.
    #[arg(long, value_name = "TOKENS", env = "FIRSTLIGHT_KV_MARGIN_TOKENS")]
    pub kv_margin_tokens: Option<u32>,
    /// Rounds sent to an engine and not yet begun.
    #[arg(long, value_name = "N", env = "FIRSTLIGHT_ADMIT_AHEAD")]
    pub admit_ahead: Option<u32>,
    /// adaptive: the ITL p99 to hold, in ms.
    #[arg(long, value_name = "MS", env = "FIRSTLIGHT_TARGET_ITL_MS")]
    pub target_itl_ms: Option<f64>,
    /// priority: weight of a class; repeatable.
    #[arg(long, value_name = "CLASS=N", env = "FIRSTLIGHT_CLASS_WEIGHTS", value_delimiter = ',',
          value_parser = class_weight)]
    pub class_weights: Vec<(String, u32)>,
    /// priority: a waiting request gains one unit of weight per this many ms; 0 = no aging.
    #[arg(long, value_name = "MS", env = "FIRSTLIGHT_AGING_MS")]
    pub aging_ms: Option<u32>,
}

impl BudgetFlags {
    /// As a change of the default budget.
    pub fn change(&self) -> v1::Budget {
        v1::Budget {
            prefill_max_batch_size: self.prefill_max_batch_size,
            prefill_max_tokens: self.prefill_max_tokens,
            max_batch_size: self.max_batch_size,
            step_prefill_tokens: self.step_prefill_tokens,
            max_active_requests: self.max_active_requests,
            max_pending: self.max_pending,
            decode_first: self.decode_first,
            policy: self.policy.clone(),
            lookahead: self.lookahead,
            force_fifo_every: self.force_fifo_every,
            max_overtaking_age_ms: self.max_overtaking_age_ms,
            kv_promise: self.kv_promise.clone(),
            kv_margin_tokens: self.kv_margin_tokens,
            admit_ahead: self.admit_ahead,
            target_itl_ms: self.target_itl_ms,
            class_weights: self.class_weights.iter().cloned().collect(),
            aging_ms: self.aging_ms,
        }
    }
}

impl Flags {
    /// Where engines are found.
    ///
    /// # Errors
    /// When neither flag is given.
    pub fn roster(&self) -> anyhow::Result<Roster> {
        match (&self.engine_dns, &self.engine[..]) {
            (Some(name), _) => {
                let refresh = seconds("--engine-dns-seconds", self.engine_dns_seconds)?;
                Ok(Roster::Dns { name: name.clone(), refresh })
            }
            (None, []) => anyhow::bail!("no engine: give --engine HOST:PORT or --engine-dns NAME:PORT"),
            (None, engines) => Ok(Roster::Fixed(engines.to_vec())),
        }
    }
}

/// The value of a flag as a time above zero.
///
/// # Errors
/// Names the flag.
pub fn seconds(flag: &str, value: f64) -> anyhow::Result<Duration> {
    Duration::try_from_secs_f64(value)
        .ok()
        .filter(|time| !time.is_zero())
        .ok_or_else(|| anyhow::anyhow!("{flag} {value}: must be a time above 0"))
}

/// Reads `CLASS=N`.
///
/// # Errors
/// Says what is no weight of a class.
pub fn class_weight(text: &str) -> Result<(String, u32), String> {
    let (name, weight) = text.split_once('=').ok_or_else(|| format!("{text:?} is not CLASS=N"))?;
    Ok((name.to_owned(), weight.parse().map_err(|e| format!("{weight:?}: {e}"))?))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn every_flag_has_an_environment_variable_of_its_name() {
        for arg in Cli::command().get_arguments() {
            let Some(long) = arg.get_long().filter(|l| !["help", "version"].contains(l)) else { continue };
            let expected = format!("FIRSTLIGHT_{}", long.to_uppercase().replace('-', "_"));
            assert_eq!(arg.get_env().and_then(|e| e.to_str()), Some(expected.as_str()), "--{long}");
        }
    }

    #[test]
    fn budget_flags_change_only_what_is_given() {
        let cli =
            Cli::parse_from(["s", "--engine", "a:1", "--max-pending", "7", "--class-weights", "gold=3"]);
        let change = cli.serve.budget.change();
        let expected = v1::Budget {
            max_pending: Some(7),
            class_weights: [("gold".to_owned(), 3)].into(),
            ..Default::default()
        };
        assert_eq!(change, expected);
    }

    #[test]
    fn budget_flags_may_be_spelled_as_bench_client_does() {
        let change = |names: [&str; 3]| {
            let values = names.into_iter().zip(["pack", "8", "4"]);
            let words = values.map(|(name, value)| format!("--{name}={value}"));
            Cli::parse_from(["s".to_owned()].into_iter().chain(words)).serve.budget.change()
        };
        let theirs = ["prefill-admission-policy", "prefill-admission-lookahead", "prefill-force-fifo-every"];
        assert_eq!(change(theirs), change(["policy", "lookahead", "force-fifo-every"]));
    }

    #[test]
    fn an_engine_must_be_given_one_way_or_the_other() {
        assert!(Cli::parse_from(["s"]).serve.roster().unwrap_err().to_string().contains("--engine"));
        let two = Cli::parse_from(["s", "--engine", "a:1", "--engine", "b:2"]).serve.roster().unwrap();
        assert_eq!(two, Roster::Fixed(vec!["a:1".into(), "b:2".into()]));
        assert!(Cli::try_parse_from(["s", "--engine", "a:1", "--engine-dns", "b:2"]).is_err());
    }
}
