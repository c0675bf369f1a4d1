//! The client's side of one request: stamps on the client's clock and what came back.

use firstlight_proto::{clock::Stamp, error::Kind, v1::Timeline};

/// A message that carried tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// When it was decoded.
    pub at: Stamp,
    /// Tokens in it, ≥ 1.
    pub tokens: u32,
}

/// How a request ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The server said that it is complete.
    Finished,
    /// It did not complete.
    Failed {
        /// Kind from the error table, or `interrupted`.
        kind: &'static str,
        /// What the server or the transport said.
        message: String,
    },
}

/// One request as the client saw it.
#[derive(Clone, Debug)]
pub struct Record {
    /// Names the request in every process.
    pub id: String,
    /// Which repeat of the run, from 0.
    pub run: usize,
    /// Place in the run, from 0.
    pub index: usize,
    /// What was asked and when it was due, see [`crate::load::fingerprint`].
    pub fingerprint: u64,
    /// Stamp 0: when it was meant to be sent.
    pub submit_start: Stamp,
    /// Closed loop: how long it had waited for a free slot before `submit_start`, ns.
    pub cap_wait_ns: Option<i64>,
    /// Stamp 1: handed to the transport.
    pub sent: Option<Stamp>,
    /// The transport took the message: its stream was open.
    pub stream_open: Option<Stamp>,
    /// Response headers arrived.
    pub submit_end: Option<Stamp>,
    /// Messages with tokens, in order; the first is stamp 9.
    pub arrivals: Vec<Arrival>,
    /// The stream ended.
    pub ended: Option<Stamp>,
    /// How it ended.
    pub outcome: Outcome,
    /// Tokens it was allowed to generate; 0 before it was asked.
    pub max_new_tokens: u32,
    /// Prompt length, when the server said it.
    pub prompt_tokens: Option<u32>,
    /// Output tokens by the server's final count, where it differs from message by message.
    pub counted_tokens: Option<u32>,
    /// Prompt tokens found in the prefix cache, when the server said it.
    pub cached_tokens: Option<u32>,
    /// The timeline of the final message.
    pub timeline: Option<Timeline>,
}

impl Record {
    /// A request that is meant to be sent at `submit_start`; interrupted until told otherwise.
    pub fn new(id: String, run: usize, index: usize, submit_start: Stamp) -> Self {
        Self {
            id,
            run,
            index,
            fingerprint: 0,
            submit_start,
            cap_wait_ns: None,
            sent: None,
            stream_open: None,
            submit_end: None,
            arrivals: Vec::new(),
            ended: None,
            outcome: Outcome::Failed { kind: "interrupted", message: "the run was interrupted".to_owned() },
            max_new_tokens: 0,
            prompt_tokens: None,
            counted_tokens: None,
            cached_tokens: None,
            timeline: None,
        }
    }

    /// This client does not wait any longer.
    pub fn hang_up(&mut self, at: Stamp) {
        self.ended = Some(at);
        self.outcome =
            Outcome::Failed { kind: Kind::Cancelled.label(), message: "this client hung up".to_owned() };
    }

    /// Stamp 9: the first message with a token.
    pub fn first_token(&self) -> Option<Stamp> {
        self.arrivals.first().map(|a| a.at)
    }

    /// The last message with a token.
    pub fn last_token(&self) -> Option<Stamp> {
        self.arrivals.last().map(|a| a.at)
    }

    /// Tokens received, by the server's count where it gave one.
    pub fn output_tokens(&self) -> u64 {
        self.counted_tokens.map_or(self.in_messages(), u64::from)
    }

    /// Whether it is known how many tokens each message brought.
    pub fn knows_tokens_per_message(&self) -> bool {
        self.output_tokens() == self.in_messages()
    }

    fn in_messages(&self) -> u64 {
        self.arrivals.iter().map(|a| u64::from(a.tokens)).sum()
    }

    /// Whether the server completed it.
    pub fn completed(&self) -> bool {
        self.outcome == Outcome::Finished
    }

    /// Whether this client hung up on it.
    pub fn is_cancelled(&self) -> bool {
        matches!(self.outcome, Outcome::Failed { kind, .. } if kind == Kind::Cancelled.label())
    }

    /// TTFT from the intended send time, ns.
    pub fn ttft_ns(&self) -> Option<i64> {
        Some(self.first_token()?.since(self.submit_start))
    }

    /// End-to-end latency from the intended send time, ns; of completed requests.
    pub fn latency_ns(&self) -> Option<i64> {
        self.ended.filter(|_| self.completed()).map(|end| end.since(self.submit_start))
    }

    /// (last − first) / (tokens after the first message), ns.
    pub fn tpot_ns(&self) -> Option<i64> {
        let later = self.output_tokens() as i64 - i64::from(self.arrivals.first()?.tokens);
        (later > 0).then(|| self.last_token()?.since(self.first_token()?).checked_div(later)).flatten()
    }

    /// Gaps between neighbouring messages, ns, with the number of tokens each brought.
    pub fn gaps(&self) -> impl Iterator<Item = (i64, u32)> {
        self.arrivals.windows(2).map(|w| (w[1].at.since(w[0].at), w[1].tokens))
    }
}
