//! What the dispatch task tells its shadow. Bounded: nothing waits for a shadow.

use firstlight_proto::{clock::Stamp, v1};
use metrics::Counter;
use tokio::sync::mpsc;

use crate::{
    admission::{EngineId, Key, Request, Tokens},
    replay::EngineShape,
};

/// News that may wait: those of 100 ms.
const BUFFER: usize = 16_384;

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
        /// What it held, and its times on the engine's clock.
        step: Box<v1::Step>,
    },
}

impl News {
    /// What a step says of its forward; its rows stay where they are.
    pub fn forward(engine: EngineId, step: &v1::Step) -> Self {
        let counts = v1::Step {
            start_ns: step.start_ns,
            end_ns: step.end_ns,
            rows: step.rows,
            prefill_rows: step.prefill_rows,
            prefill_tokens: step.prefill_tokens,
            attended: step.attended,
            bucket: step.bucket,
            active: step.active,
            ..v1::Step::default()
        };
        Self::Forward { engine, step: Box::new(counts) }
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
