//! A queue that lets each item through a known time after its stamp, in order. Only tests of the breakdown use it.

use std::time::Duration;

use firstlight_proto::clock::{Clock, Stamp};
use tokio::sync::mpsc;

/// Passes items on from `from`, each `delay` after its stamp.
pub fn line<T: Send + 'static>(
    clock: Clock,
    delay: Duration,
    mut from: mpsc::Receiver<(Stamp, T)>,
) -> mpsc::Receiver<(Stamp, T)> {
    let (to, delayed) = mpsc::channel(from.max_capacity());
    tokio::spawn(async move {
        while let Some((made, item)) = from.recv().await {
            tokio::time::sleep(clock.until(made + delay)).await;
            if to.send((made, item)).await.is_err() {
                return;
            }
        }
    });
    delayed
}
