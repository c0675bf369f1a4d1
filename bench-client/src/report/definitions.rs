//! What the figures mean, in words; printed with the result and part of the JSON.

use std::collections::BTreeMap;

const DEFINITIONS: [(&str, &str); 8] = [
    (
        "TTFT",
        "first message with a token − intended send time, on the client's clock; `from sent` starts at the hand-over to the transport",
    ),
    ("Queue wait", "queued in the scheduler → start of the forward with the first prompt row (stamps 3 → 6)"),
    ("TPOT", "(last − first token) / (tokens after the first message), per request"),
    (
        "ITL",
        "gaps between neighbouring tokens, pooled; a message of n tokens is n gaps of a n-th. Per message: gaps between messages",
    ),
    ("Latency", "end of stream − intended send time, of completed requests"),
    (
        "Throughput",
        "tokens of all requests, and completed requests, per second from the first intended send to the last end",
    ),
    (
        "Goodput",
        "completed requests that meet every objective of --slo, per second; in % of all requests, failed ones included; itl is a request's longest gap",
    ),
    (
        "Failed",
        "requests without a complete stream: in no percentile of latency; without a first token in none of TTFT, and counted apart",
    ),
];

/// Name and meaning of every figure.
pub fn definitions() -> BTreeMap<String, String> {
    DEFINITIONS.iter().map(|(name, meaning)| ((*name).to_owned(), (*meaning).to_owned())).collect()
}
