//! The clients' side of the dispatch task: handing in a request, and the tokens and the ending that come back.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use firstlight_proto::{clock::Stamp, error::Failure, v1};
use tokio::sync::{mpsc, oneshot, watch};

use super::{Dispatch, Served};
use crate::{admission::Key, record::Record, request::Ask};

/// A message to the task.
pub enum Command {
    /// A request is at the door.
    Offer {
        /// What is asked for.
        ask: Box<Ask>,
        /// Queued, or refused.
        reply: oneshot::Sender<Result<Ticket, Failure>>,
    },
    /// A stream needs no more tokens.
    Withdraw {
        /// Which.
        key: Key,
        /// Why.
        why: Withdrawal,
    },
    /// Look at, or change, the task's state: for operators and metrics, not for requests.
    With(Box<dyn FnOnce(&mut Dispatch) + Send>),
}

/// Why a stream needs no more tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Withdrawal {
    /// The client is gone.
    HungUp,
    /// A stop string is complete; the stream waits for its ending.
    StopString,
}

/// One token on its way to a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Token {
    /// Its id.
    pub id: u32,
    /// When it was decoded from the engine's message.
    pub at: Stamp,
}

/// How a request ended, and all that was stamped of it. Whoever takes it tells metrics and watchers.
#[derive(Debug)]
pub struct Ending {
    /// How.
    pub end: End,
    /// Stamps.
    pub record: Record,
}

/// How a request ended.
#[derive(Debug)]
pub enum End {
    /// With a result.
    Finished(v1::FinishReason),
    /// Without one.
    Failed(Failure, Option<crate::metrics::CancelledBy>),
}

/// A request that is queued: its stream of tokens. Dropping it takes the request back.
pub struct Ticket {
    /// Stamp 3.
    pub queued: Stamp,
    /// Tokens as they come; closed when there are no more.
    pub tokens: mpsc::Receiver<Token>,
    /// Sent before `tokens` closes.
    pub ending: oneshot::Receiver<Ending>,
    /// Takes the request back when dropped.
    pub claim: Claim,
}

/// The right to withdraw a request; used at the latest when dropped.
pub struct Claim {
    key: Key,
    commands: mpsc::UnboundedSender<Command>,
    spent: bool,
}

impl Claim {
    /// Asks for the request to end.
    pub fn withdraw(&mut self, why: Withdrawal) {
        if !std::mem::replace(&mut self.spent, true) {
            // Without the task there is nothing to withdraw from.
            let _ = self.commands.send(Command::Withdraw { key: self.key, why });
        }
    }

    /// The request has ended by itself.
    pub fn settle(&mut self) {
        self.spent = true;
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.withdraw(Withdrawal::HungUp);
    }
}

/// Talks to the dispatch task.
#[derive(Clone)]
pub struct Dispatcher {
    commands: mpsc::UnboundedSender<Command>,
    served: watch::Receiver<Arc<Served>>,
    pub(super) standing: Arc<Standing>,
}

/// Whether the queue is full, as of the last message: lets the door refuse before a prompt is tokenized.
#[derive(Debug, Default)]
pub(super) struct Standing(AtomicBool);

impl Standing {
    pub fn set(&self, full: bool) {
        self.0.store(full, Ordering::Relaxed);
    }
}

impl Dispatcher {
    pub(super) fn new(
        commands: mpsc::UnboundedSender<Command>,
        served: watch::Receiver<Arc<Served>>,
    ) -> Self {
        Self { commands, served, standing: Arc::default() }
    }

    /// Hands in a request.
    ///
    /// # Errors
    /// Why it is refused.
    pub async fn offer(&self, ask: Ask) -> Result<Ticket, Failure> {
        let (reply, answer) = oneshot::channel();
        self.send(Command::Offer { ask: Box::new(ask), reply })?;
        answer.await.map_err(|_| stopping())?
    }

    /// Whether another request may wait; costs next to nothing while the queue is not full.
    ///
    /// # Errors
    /// When to come back.
    pub async fn check_room(&self) -> Result<(), Failure> {
        if !self.standing.0.load(Ordering::Relaxed) {
            return Ok(());
        }
        self.with(Dispatch::check_room).await?
    }

    /// Runs `inspect` on the task's state.
    ///
    /// # Errors
    /// When the task has stopped.
    pub async fn with<R: Send + 'static>(
        &self,
        inspect: impl FnOnce(&mut Dispatch) -> R + Send + 'static,
    ) -> Result<R, Failure> {
        let (reply, answer) = oneshot::channel();
        self.send(Command::With(Box::new(move |dispatch| {
            // Nobody waits any more: the answer is not needed.
            let _ = reply.send(inspect(dispatch));
        })))?;
        answer.await.map_err(|_| stopping())
    }

    /// The model that is served, as the attached engines tell.
    pub fn served(&self) -> watch::Receiver<Arc<Served>> {
        self.served.clone()
    }

    pub(super) fn claim(&self, key: Key) -> Claim {
        Claim { key, commands: self.commands.clone(), spent: false }
    }

    fn send(&self, command: Command) -> Result<(), Failure> {
        self.commands.send(command).map_err(|_| stopping())
    }
}

/// The service is going down.
pub fn stopping() -> Failure {
    Failure::Unavailable {
        reason: "the scheduler is stopping".into(),
        retry_after: std::time::Duration::from_secs(1),
    }
}
