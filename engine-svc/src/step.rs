//! The step loop: one thread that owns the planner, the books of the KV pool and the backend. Everything else
//! sends it [`Command`]s and reads what it publishes.
//!
//! - [`command`]: what the loop is told
//! - [`outgoing`]: the bounded way back to one attachment's stream
//! - `run`: the loop: commands, forwards, parking
//! - `arrive`: attachments, batches and cancels, between forwards
//! - `drain`: no more beginnings: what waits goes back
//! - `publish`: one `Step` message after each forward, spans, gauges
//! - `attachment`: one scheduler's stream as the loop sees it
//! - `running`: one sequence's stamps
//! - `execute`: a planned forward on the backend
//! - `warm_up`: what runs before the loop serves

use std::{
    sync::{Arc, Mutex, PoisonError, mpsc},
    thread,
};

use firstlight_proto::{
    clock::{Clock, Stamp},
    inject::Injections,
    serve::spans::SpanHub,
    v1,
};
use firstlight_sim::{
    planner::{Limits, Shape},
    wait::{Blocked, EngineWait},
};
use tokio::sync::oneshot;

use crate::{
    backend::{Backend, BackendError},
    metrics::LiveCounts,
};

mod arrive;
mod attachment;
pub mod command;
mod drain;
mod execute;
pub mod outgoing;
mod publish;
mod run;
mod running;
#[cfg(test)]
mod tests;
mod warm_up;

pub use command::{Admission, Arrival, AttachmentKey, Command, Snapshot};
pub use outgoing::Outgoing;

/// What the loop needs to know besides the backend.
pub struct StepConfig {
    /// The clock of every stamp.
    pub clock: Clock,
    /// What every attachment is greeted with; free blocks and limits are filled in.
    pub hello: v1::Hello,
    /// Planner's constants.
    pub shape: Shape,
    /// Limits until a scheduler sets others.
    pub limits: Limits,
    /// An attachment that takes nothing for this long is ended.
    pub stall_limit: std::time::Duration,
    /// Known delays, for tests of the breakdown.
    pub injections: Injections,
    /// Timelines and spans are made; off only to measure what they cost.
    pub tells: bool,
    /// Where spans go.
    pub spans: Arc<SpanHub>,
    /// Where counts are seen.
    pub counts: LiveCounts,
    /// Time that sequences have waited, live.
    pub blocked: LiveBlocked,
}

/// Time that sequences have waited in the engine, written by the loop and read by whoever exports it, even while
/// the loop is stuck in a forward.
#[derive(Debug, Clone, Default)]
pub struct LiveBlocked(Arc<Mutex<Blocked>>);

impl LiveBlocked {
    /// The totals as they are at `now`.
    pub fn at(&self, now: Stamp) -> EngineWait {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).at(now.ns())
    }

    fn update(&self, change: impl FnOnce(&mut Blocked)) {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

/// The way to the loop; cheap to clone.
#[derive(Debug, Clone)]
pub struct StepHandle {
    commands: mpsc::Sender<Command>,
}

impl StepHandle {
    /// Tells the loop something; it wakes at once. Nothing happens when the loop has ended.
    pub fn send(&self, command: Command) {
        // The loop's end is reported through the receiver that `start` returned.
        let _ = self.commands.send(command);
    }

    /// The loop's state between two forwards; `None` when it has ended.
    pub async fn snapshot(&self) -> Option<Snapshot> {
        let (reply, answer) = oneshot::channel();
        self.send(Command::Inspect(reply));
        answer.await.ok()
    }
}

/// Why the loop did not start, or ended other than by command.
#[derive(Debug, thiserror::Error)]
pub enum StepError {
    /// There is no thread for it.
    #[error("step loop: {0}")]
    Thread(#[from] std::io::Error),
    /// The backend does not run.
    #[error("the first forward, before serving: {0}")]
    FirstForward(BackendError),
    /// The backend cannot be used further.
    #[error("backend failed: {0}")]
    Backend(String),
    /// A defect of ours brought the loop down.
    #[error("step loop panicked: {0}")]
    Panic(String),
}

/// Starts the loop on its own thread, once the backend has run there. The receiver tells when and why it ended.
///
/// # Errors
/// When the thread cannot be started, or the backend does not run.
pub async fn start(
    config: StepConfig,
    mut backend: Box<dyn Backend>,
) -> Result<(StepHandle, oneshot::Receiver<Result<(), StepError>>), StepError> {
    let (commands, inbox) = mpsc::channel();
    let (warmed_up, warm) = oneshot::channel();
    let (ended, end) = oneshot::channel();
    thread::Builder::new().name("step-loop".into()).spawn(move || {
        let warm = warm_up::warm_up(backend.as_mut());
        let starts = warm.is_ok();
        // Nobody waits for it when the process is going down anyway.
        if warmed_up.send(warm).is_err() || !starts {
            return;
        }
        let run = std::panic::AssertUnwindSafe(|| run::StepLoop::new(config, backend, inbox).run());
        let result = std::panic::catch_unwind(run).unwrap_or_else(|panic| {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no message");
            Err(StepError::Panic(text.to_owned()))
        });
        // Nobody waits for it when the process is going down anyway.
        let _ = ended.send(result);
    })?;
    let panicked = |_| StepError::Panic("in the first forward".to_owned());
    warm.await.map_err(panicked)?.map_err(StepError::FirstForward)?;
    Ok((StepHandle { commands }, end))
}
