//! Shutdown in two stages: the first SIGTERM or Ctrl-C asks to drain, the second (or the drain limit)
//! stops at once.

use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// The two stages, as tokens that tasks wait on.
#[derive(Clone, Debug, Default)]
pub struct Shutdown {
    /// Cancelled when draining starts: take no new work, finish what runs.
    pub drain: CancellationToken,
    /// Cancelled when time is up: end every stream now.
    pub stop: CancellationToken,
}

impl Shutdown {
    /// Listens for SIGTERM and Ctrl-C. `limit` bounds the drain.
    ///
    /// # Errors
    /// When the signal handlers cannot be installed.
    pub fn on_signals(limit: Duration) -> std::io::Result<Self> {
        let shutdown = Self::default();
        let mut term = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        let stages = shutdown.clone();
        tokio::spawn(async move {
            tokio::select! { _ = term.recv() => {}, _ = interrupt.recv() => {} }
            tracing::info!(limit_s = limit.as_secs_f64(), "draining; a second signal stops at once");
            stages.drain.cancel();
            tokio::select! {
                _ = term.recv() => tracing::warn!("second signal: stopping at once"),
                _ = interrupt.recv() => tracing::warn!("second signal: stopping at once"),
                () = tokio::time::sleep(limit) => tracing::warn!("drain limit reached: stopping"),
                () = stages.stop.cancelled() => {}
            }
            stages.stop.cancel();
        });
        Ok(shutdown)
    }
}
