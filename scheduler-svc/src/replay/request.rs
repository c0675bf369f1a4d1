//! What arrives in a replay, and the story of what became of it.

use firstlight_proto::clock::Stamp;
use firstlight_sim::{planner::NewSequence, wait::EngineWait};

use crate::admission::{Key, Refused, Request, Tokens, Waited};

/// Stands for any token: what is said does not matter, only how much.
const TOKEN: u32 = 0;

/// A request at the door, and what the replay has to know of it beforehand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// As the core is told.
    pub request: Request,
    /// Tokens that it will generate, ≥ 1; at most the request's `max_new`.
    pub output: Tokens,
    /// Its prompt as the engine sees it.
    pub prompt: Prompt,
}

/// A prompt as the engine sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Prompt {
    /// It shares nothing with others; so many of its tokens were found in the prefix cache and cost nothing.
    Unique {
        /// Tokens that are not computed.
        cached: Tokens,
    },
    /// Its token ids, from which the replay finds shared prefixes itself.
    Ids(Vec<u32>),
}

impl Arrival {
    /// A request that generates all it may and shares no prefix.
    pub fn new(request: Request) -> Self {
        Self { request, output: request.max_new, prompt: Prompt::Unique { cached: Tokens(0) } }
    }

    /// The sequence that an engine is sent once `generated` tokens have been received.
    pub(super) fn sequence(&self, generated: Tokens) -> NewSequence {
        let prompt = match &self.prompt {
            Prompt::Unique { cached } => self.request.prompt.0.saturating_sub(cached.0).max(1) as usize,
            Prompt::Ids(ids) => ids.len(),
        };
        let mut tokens = Vec::with_capacity(prompt + self.output.0.max(generated.0) as usize);
        if let Prompt::Ids(ids) = &self.prompt {
            tokens.extend_from_slice(ids);
        }
        tokens.resize(prompt + generated.0 as usize, TOKEN);
        NewSequence {
            tokens,
            max_new_tokens: self.output.0.saturating_sub(generated.0).max(1) as usize,
            stop_token_ids: Vec::new(),
            ignore_eos: true,
            prefix_cache: matches!(self.prompt, Prompt::Ids(_)),
        }
    }
}

/// What became of a request. All stamps are on the one clock of the replay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Story {
    /// Its name in the core.
    pub key: Key,
    /// Stamp 3: queued.
    pub queued: Stamp,
    /// Stamp 4 of the attempt that got the first token (or of the last one so far).
    pub admitted: Option<Stamp>,
    /// Its wait until then, by cause.
    pub waited: Waited,
    /// Stamps 5 to 7, once it has its first token.
    pub engine: Option<InEngine>,
    /// Stamp 8: the scheduler has its first token.
    pub first_token: Option<Stamp>,
    /// The scheduler has its last token so far.
    pub last_token: Option<Stamp>,
    /// Longest time between two of its tokens, ns.
    pub longest_gap: i64,
    /// Tokens received.
    pub tokens: Tokens,
    /// Attempts that died with their engine.
    pub lost: u32,
    /// Attempts that were preempted.
    pub preempted: u32,
    /// When and how it ended.
    pub end: Option<(Stamp, Ending)>,
}

/// The way of a request through its engine to its first token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InEngine {
    /// Stamp 5: it reached the engine.
    pub received: Stamp,
    /// Stamp 6: the forward that holds its first prompt row starts.
    pub admitted: Stamp,
    /// The time in between, by cause.
    pub wait: EngineWait,
    /// Forwards that held its prompt rows, ns.
    pub prefill_own: i64,
    /// Stamp 7: its first token is there.
    pub first_token: Stamp,
}

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// It generated all its tokens.
    Finished,
    /// It was queued, and could not be served after all.
    TurnedAway(Refused),
    /// Its deadline passed.
    DeadlinePassed,
    /// Its client took it back.
    Withdrawn,
}

impl Story {
    pub(super) fn new(key: Key, queued: Stamp) -> Self {
        Self {
            key,
            queued,
            admitted: None,
            waited: Waited::default(),
            engine: None,
            first_token: None,
            last_token: None,
            longest_gap: 0,
            tokens: Tokens(0),
            lost: 0,
            preempted: 0,
            end: None,
        }
    }

    /// A token came; the time since the one before it.
    pub(super) fn token(&mut self, at: Stamp) -> Option<i64> {
        self.tokens = self.tokens + Tokens(1);
        self.first_token.get_or_insert(at);
        let gap = self.last_token.replace(at).map(|last| at.since(last))?;
        self.longest_gap = self.longest_gap.max(gap);
        Some(gap)
    }

    /// Whether it generated all its tokens.
    pub fn finished(&self) -> bool {
        matches!(self.end, Some((_, Ending::Finished)))
    }
}
