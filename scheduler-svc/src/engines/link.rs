//! One engine address: attachment after attachment, with a growing wait between failures.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU64, Ordering},
};

use tokio_util::sync::CancellationToken;

use super::{Context, attachment::Attachment, backoff::Backoff};
use crate::admission::EngineId;

/// Keeps `address` attached until `stop`; `attached` tells whether it is.
pub async fn run(
    context: Context,
    address: Arc<str>,
    ids: Arc<AttachmentIds>,
    attached: Arc<AtomicBool>,
    stop: CancellationToken,
) {
    let mut backoff = Backoff::new();
    let mut again = false;
    while !stop.is_cancelled() {
        let started = context.clock.now();
        let engine = ids.next();
        let attachment =
            Attachment { context: &context, address: &address, engine, again, attached: &attached };
        let Some(ended) = stop.run_until_cancelled(attachment.run()).await else {
            return attachment.lost("the scheduler stops").await;
        };
        again |= ended.was_attached;
        let wait = backoff.after(context.clock.now().saturating_since(started));
        if ended.was_attached {
            tracing::warn!(engine = %address, reason = %ended.reason, wait_ms = wait.as_millis() as u64, "engine lost");
        } else {
            tracing::info!(engine = %address, reason = %ended.reason, wait_ms = wait.as_millis() as u64, "no engine yet");
        }
        stop.run_until_cancelled(tokio::time::sleep(wait)).await;
    }
}

/// Attachment ids of one scheduler: never the same, and different after a restart, so that an engine that
/// outlives a scheduler tells streams apart.
#[derive(Debug)]
pub struct AttachmentIds(AtomicU64);

impl AttachmentIds {
    /// Ids that continue from a start no other scheduler is likely to have.
    pub fn new() -> Self {
        let (high, low) = uuid::Uuid::now_v7().as_u64_pair();
        Self(AtomicU64::new((high ^ low) >> 1))
    }

    fn next(&self) -> EngineId {
        EngineId(self.0.fetch_add(1, Ordering::Relaxed))
    }
}

impl Default for AttachmentIds {
    fn default() -> Self {
        Self::new()
    }
}
