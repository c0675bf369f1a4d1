//! What the dispatch task tells its shadow. Bounded: nothing waits for a shadow.

use firstlight_proto::{clock::Stamp, v1};
use firstlight_sim::cost::Load;
use metrics::Counter;
use tokio::sync::mpsc;

use crate::{
    admission::{EngineId, Key, Request, Tokens},
    replay::EngineShape,
};

/// News that may wait: those of a second, the time between two ticks, at some 20,000 requests per second.
const BUFFER: usize = 1 << 17;

/// Something that happened, in order of time.
#[derive(Clone, Debug)]
pub enum News {
    /// An engine is attached.
    Attached {
        /// When.
        at: Stamp,
        /// Which attachment.
        engine: EngineId,
        /// What it can hold.
        shape: EngineShape,
    },
    /// An engine drains.
    Draining {
        /// When that was heard.
        at: Stamp,
        /// Which.
        engine: EngineId,
    },
    /// An attachment ended.
    Lost {
        /// When.
        at: Stamp,
        /// Which.
        engine: EngineId,
    },
    /// A request was queued.
    Queued {
        /// Stamp 3.
        at: Stamp,
        /// Stamp 2.
        received: Stamp,
        /// Its name in the live core.
        key: Key,
        /// What is asked for.
        request: Request,
        /// Its prompt, where the prefix cache may serve it.
        prompt: Option<Vec<u32>>,
    },
    /// A request got its first token.
    FirstToken {
        /// Its segment `dispatch`, ns.
        dispatch: i64,
        /// Its segment `return`, ns.
        back: i64,
    },
    /// A request ended.
    Ended {
        /// When.
        at: Stamp,
        /// Its name in the live core.
        key: Key,
        /// Tokens it got.
        tokens: Tokens,
        /// It finished; else it was taken back or failed.
        finished: bool,
    },
    /// A forward ended.
    Forward {
        /// Whose.
        engine: EngineId,
        /// What it held, and when it ran.
        ran: Ran,
    },
}

/// What a step says of its forward.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ran {
    /// When it started on the engine's clock.
    pub start: Stamp,
    /// When it ended there.
    pub end: Stamp,
    /// What it held.
    pub load: Load,
    /// The size that its decode rows were padded to.
    pub bucket: usize,
    /// The engine has more to run.
    pub goes_on: bool,
}

impl From<&v1::Step> for Ran {
    fn from(step: &v1::Step) -> Self {
        Self {
            start: Stamp::from_ns(step.start_ns),
            end: Stamp::from_ns(step.end_ns),
            load: Load {
                prefill_rows: step.prefill_rows as usize,
                prefill_tokens: step.prefill_tokens as usize,
                decode_rows: step.rows.saturating_sub(step.prefill_rows) as usize,
                attended: step.attended as usize,
            },
            bucket: step.bucket as usize,
            goes_on: step.active > 0,
        }
    }
}

/// The dispatch task's end.
#[derive(Debug)]
pub struct Feed {
    news: mpsc::Sender<News>,
    dropped: Counter,
}

impl Feed {
    /// Both ends; `dropped` counts news that found the channel full.
    pub fn new(dropped: Counter) -> (Self, mpsc::Receiver<News>) {
        let (news, receiver) = mpsc::channel(BUFFER);
        (Self { news, dropped }, receiver)
    }

    /// Tells, without waiting.
    pub fn tell(&self, news: News) {
        if self.news.try_send(news).is_err() {
            self.dropped.increment(1);
        }
    }
}
