//! Everything a run measured, as it stands in the JSON. Times are ms; `null` = not measured, never 0.

use std::collections::BTreeMap;

use firstlight_proto::v1::GetModelResponse;
use serde::{Deserialize, Serialize};

use super::stats::Percentiles;
use crate::audit::Audit;

/// A run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Results {
    /// What was asked of whom.
    pub run: RunInfo,
    /// How many requests ended how.
    pub requests: Requests,
    /// From the first intended send to the last hand-over to the transport, ms (of the last run).
    pub submit_wall_ms: Option<f64>,
    /// Response headers − sent: the scheduler has validated, tokenized and queued the request.
    pub add_request: Percentiles,
    /// Until the transport opened a stream for the request (part of ingress).
    pub stream_open: Percentiles,
    /// Closed loop: waiting for a free slot, before `submit_start`; not part of TTFT.
    pub cap_wait: Percentiles,
    /// First token − intended send time.
    pub ttft: Percentiles,
    /// First token − sent.
    pub ttft_from_sent: Percentiles,
    /// (last − first token) / (tokens − 1), per request.
    pub tpot: Percentiles,
    /// Gaps between neighbouring tokens, pooled; a message of n tokens counts as n gaps of a n-th.
    pub itl: Percentiles,
    /// Gaps between neighbouring messages, pooled.
    pub itl_per_message: Percentiles,
    /// End of stream − intended send time, of completed requests.
    pub latency: Percentiles,
    /// Stamp 3 → 6: until its prefill really starts.
    pub queue_wait_total: Percentiles,
    /// Tokens and requests per second of wall time.
    pub throughput: Throughput,
    /// The chain, part by part.
    pub segments: BTreeMap<String, SegmentStats>,
    /// Means over the slowest ⌈1 %⌉ by TTFT, at least 5.
    pub slowest_1pct: Slowest,
    /// Mean of `queue_wait_total` by cause; adds up to it.
    pub queue_wait_by_cause: BTreeMap<String, f64>,
    /// Mean part of `queue_wait` before a request reached the head of its lane.
    pub behind_mean_ms: Option<f64>,
    /// The inside of `prefill`.
    pub prefill: PrefillStats,
    /// Sums of two crossings that need no clock offset.
    pub round_trips: RoundTrips,
    /// What the chain leaves over.
    pub unexplained: Unexplained,
    /// Where the stamps came from.
    pub spans: SpanCounts,
    /// Requests that never got a first token: they waited, and are in no percentile above.
    pub censored: Censored,
    /// The clocks.
    pub clock: ClockInfo,
    /// One entry per repeat.
    pub repeats: Vec<Repeat>,
    /// Means over repeats with their confidence interval; `null` for a single run.
    pub over_repeats: Option<OverRepeats>,
    /// Requests that met every objective of `--slo`; `null` without one.
    pub goodput: Option<Goodput>,
    /// The server's own means, where it exports them.
    pub server: Option<ServerView>,
    /// Balances with the services' own metrics; `null` without `--audit`.
    pub audit: Option<Audit>,
    /// Whether the client was fit to measure.
    pub validity: Validity,
    /// What the figures mean.
    pub definitions: BTreeMap<String, String>,
}

/// What was asked of whom.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RunInfo {
    /// Name of the run, for people.
    pub label: String,
    /// Address of the server.
    pub target: String,
    /// `firstlight`, `openai` or `openai-chat`.
    pub api: String,
    /// Model, as the server names it.
    pub model: String,
    /// cpu, cuda or sim; several engines are listed.
    pub device: String,
    /// Number format of the weights' arithmetic.
    pub dtype: String,
    /// Threads of each engine.
    pub threads: u32,
    /// Number of engines.
    pub engines: usize,
    /// The load, in words.
    pub load: String,
    /// Seed of random arrivals and lengths.
    #[serde(default)]
    pub load_seed: u64,
    /// Limits of admission in force, `name = value`, when they could be read.
    pub budget: BTreeMap<String, String>,
    /// The run was cut short by Ctrl-C.
    pub interrupted: bool,
    /// Why a sweep gave the run up before its end; `null` when it did not.
    #[serde(default)]
    pub given_up: Option<String>,
    /// Version of this client.
    pub client_version: String,
}

impl RunInfo {
    /// What the pair at `target` says of itself.
    pub fn of_pair(target: &str, model: &GetModelResponse) -> Self {
        let first = model.engines.first();
        Self {
            target: target.to_owned(),
            api: "firstlight".to_owned(),
            model: model.name.clone(),
            device: first.map(|e| e.backend.clone()).unwrap_or_default(),
            dtype: first.map(|e| e.dtype.clone()).unwrap_or_default(),
            threads: first.map_or(0, |e| e.threads),
            engines: model.engines.len(),
            client_version: env!("CARGO_PKG_VERSION").to_owned(),
            ..Self::default()
        }
    }
}

/// How many requests ended how.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Requests {
    /// Complete streams.
    pub completed: usize,
    /// All others.
    pub failed: usize,
    /// The others by kind.
    pub failed_by_kind: BTreeMap<String, usize>,
    /// Prompt tokens, as the server counted them; `null` when it did not say.
    pub prompt_tokens: Option<u64>,
    /// Tokens received.
    pub completion_tokens: u64,
}

/// Rates over the wall time from the first intended send to the last end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Throughput {
    /// Tokens received per second.
    pub output_tokens_per_s: Option<f64>,
    /// Completed requests per second.
    pub requests_per_s: Option<f64>,
    /// The wall time, s.
    pub wall_s: Option<f64>,
}

/// Requests that met every objective.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Goodput {
    /// The objectives.
    pub slo: String,
    /// How many met all of them.
    pub met: usize,
    /// In % of all requests, failed ones included.
    pub percent: f64,
    /// Per second of wall time.
    pub requests_per_s: Option<f64>,
}

/// A peer's own means over the run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ServerView {
    /// Which server.
    pub server: String,
    /// What it calls TTFT.
    pub ttft_ms: Option<f64>,
    /// What it calls queue time.
    pub queue_ms: Option<f64>,
    /// What it calls prefill time.
    pub prefill_ms: Option<f64>,
    /// Prefill time per prompt token, where it is known per token only.
    pub prefill_ms_per_prompt_token: Option<f64>,
    /// The client's mean TTFT less its queue and prefill time.
    pub unexplained_ms: Option<f64>,
}

/// One part of the chain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SegmentStats {
    /// Over the requests in which it was measured.
    #[serde(flatten)]
    pub times: Percentiles,
    /// Mean half-width of its uncertainty; 0 where one clock took both stamps.
    pub bound_ms: Option<f64>,
    /// Requests in which it came out negative.
    pub negative: usize,
    /// Requests in which it was smaller than its uncertainty.
    pub unresolved: usize,
    /// Its contribution to the mean TTFT: requests in which it is missing count as 0, so parts add up.
    pub share_ms: Option<f64>,
}

/// The slowest requests.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Slowest {
    /// How many.
    pub n: usize,
    /// Their mean TTFT.
    pub ttft_mean_ms: Option<f64>,
    /// Their mean per part.
    pub segments: BTreeMap<String, f64>,
    /// Their mean queue wait (3 → 6) by cause.
    pub queue_wait_by_cause: BTreeMap<String, f64>,
    /// Their mean remainder.
    pub unexplained_ms: Option<f64>,
}

/// The inside of `prefill`, means.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PrefillStats {
    /// Forwards that held the request's rows.
    pub own_ms: Option<f64>,
    /// Other work between its chunks.
    pub between_ms: Option<f64>,
    /// Forwards per request.
    pub chunks: Option<f64>,
}

/// Sums of two crossings that need no clock offset.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RoundTrips {
    /// `ingress + deliver`.
    pub ingress_deliver: Percentiles,
    /// `dispatch + return`.
    pub dispatch_return: Percentiles,
}

/// What the chain leaves over.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Unexplained {
    /// Mean remainder.
    pub mean_ms: Option<f64>,
    /// Sum of remainders in % of the sum of TTFTs.
    pub percent_of_ttft: Option<f64>,
    /// Chains that close: no stamp missing and at most 0.1 % unexplained.
    pub closed: usize,
    /// Chains that do not.
    pub open: usize,
    /// What is missing in how many chains.
    pub missing: BTreeMap<String, usize>,
}

/// Where the stamps came from, in requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SpanCounts {
    /// Scheduler's stamps from its spans.
    pub scheduler_direct: usize,
    /// Scheduler's stamps from the final message, since the span was lost.
    pub scheduler_final: usize,
    /// Neither.
    pub scheduler_missing: usize,
    /// Engine's stamps from the engine itself.
    pub engine_direct: usize,
    /// Engine's stamps relayed by the scheduler.
    pub engine_relayed: usize,
    /// Engine's stamps from the final message, since the span was lost.
    pub engine_final: usize,
    /// None of these.
    pub engine_missing: usize,
    /// Spans that the services dropped because this client was slow.
    pub dropped: u64,
}

/// Requests without a first token.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Censored {
    /// How many.
    pub n: usize,
    /// From intended send to the end of the stream.
    pub wait: Percentiles,
    /// In the scheduler's pending queue, where it is known.
    pub queue_wait: Percentiles,
}

/// The clocks, seen from this client.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ClockInfo {
    /// The scheduler's.
    pub scheduler: Option<ClockPoint>,
    /// The engine's (the first one's).
    pub engine: Option<ClockPoint>,
    /// Every engine's, by name.
    pub engines: BTreeMap<String, ClockPoint>,
    /// client → scheduler → engine → client: 0 when all offsets are right.
    pub loop_residual_ms: Option<f64>,
    /// What the residual may be at most when every bound holds.
    pub loop_bound_ms: Option<f64>,
}

/// One clock at the end of the run: theirs = ours + offset ± bound.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ClockPoint {
    /// Offset.
    pub offset_ms: f64,
    /// Bound.
    pub bound_ms: f64,
    /// Both processes read one clock.
    pub same_clock: bool,
}

/// One repeat.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Repeat {
    /// TTFT.
    pub ttft: Percentiles,
    /// TPOT.
    pub tpot: Percentiles,
    /// Queue wait, stamp 3 → 6.
    pub queue_wait_total: Percentiles,
    /// Rates.
    pub throughput: Throughput,
}

/// Mean of a figure over repeats ± half of its 95 % confidence interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Estimate {
    /// Mean over repeats.
    pub mean: f64,
    /// Half-width of the 95 % confidence interval.
    pub half_width: f64,
}

/// Figures over repeats.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct OverRepeats {
    /// Mean TTFT, ms.
    pub ttft_mean_ms: Option<Estimate>,
    /// p99 TTFT, ms.
    pub ttft_p99_ms: Option<Estimate>,
    /// Mean TPOT, ms.
    pub tpot_mean_ms: Option<Estimate>,
    /// Output tokens per second.
    pub output_tokens_per_s: Option<Estimate>,
}

/// Whether the client was fit to measure.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Validity {
    /// `VALID` or `INVALID`.
    pub verdict: String,
    /// Why it is INVALID.
    pub reasons: Vec<String>,
    /// p99 of sent − intended send time.
    pub send_lag_p99_ms: Option<f64>,
    /// The same against the null server, before the run.
    pub own_send_lag_p99_ms: Option<f64>,
    /// p99 of arrival − hand-over of the null server's first tokens.
    pub own_receive_lag_p99_ms: Option<f64>,
    /// This client's own CPU use, in cores, while the load ran.
    pub cpu_cores: Option<f64>,
}
