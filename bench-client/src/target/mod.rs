//! How one request is sent to a server, and what the client saw of it.
//!
//! - [`record`]: the client's side of one request
//! - [`firstlight`]: gRPC to scheduler-svc
//! - [`openai`]: HTTP to any OpenAI-compatible server; [`sse`]: its streams; [`https`]: its connections
//! - [`codec`]: stamps messages where they enter and leave the transport

use std::time::Duration;

pub mod codec;
pub mod firstlight;
pub mod https;
pub mod openai;
pub mod record;
pub mod sse;

pub use firstlight::Firstlight;
pub use openai::OpenAi;
pub use record::{Arrival, Outcome, Record};

/// What to ask a server for.
#[derive(Clone, Debug, PartialEq)]
pub struct Ask {
    /// The prompt.
    pub prompt: Prompt,
    /// Most tokens to generate, ≥ 1.
    pub max_new_tokens: u32,
    /// On whose behalf.
    pub caller: Caller,
}

impl Ask {
    /// Asks on nobody's behalf.
    pub fn new(prompt: Prompt, max_new_tokens: u32) -> Self {
        Self { prompt, max_new_tokens, caller: Caller::default() }
    }
}

/// What admission goes by besides lengths, of one request; scheduler-svc is told, no other server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Caller {
    /// `x-tenant`.
    pub tenant: Option<String>,
    /// `x-class`.
    pub class: Option<String>,
    /// How long it waits.
    pub timeout: Option<Duration>,
}

/// A prompt as text or as token ids.
#[derive(Clone, Debug, PartialEq)]
pub enum Prompt {
    /// Tokenized by the server.
    Text(String),
    /// Used as they are.
    Ids(Vec<u32>),
}

/// A server under load.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "a run has one")]
pub enum Target {
    /// scheduler-svc over gRPC.
    Firstlight(Firstlight),
    /// Any OpenAI-compatible server over HTTP.
    OpenAi(Box<OpenAi>),
}

impl Target {
    /// Sends one request and reads its answer to the end, filling in `record`; `on_message` sees the
    /// record after every message that brought tokens.
    pub async fn generate(&self, ask: Ask, record: &mut Record, mut on_message: impl FnMut(&Record)) {
        record.max_new_tokens = ask.max_new_tokens;
        match self {
            Self::Firstlight(server) => {
                let seen = |record: &Record, message: &firstlight::Message<'_>| {
                    if !message.ids.is_empty() {
                        on_message(record);
                    }
                };
                server.generate(ask, record, seen).await;
            }
            Self::OpenAi(server) => server.generate(ask, record, on_message).await,
        }
    }
}
