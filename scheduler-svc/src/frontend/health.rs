//! Health: `live` while the process works, `ready` while new requests are welcome, `draining` while it drains.

use std::sync::Arc;

use firstlight_proto::serve::health::{DRAINING, LIVE, READY};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tonic_health::{ServingStatus, server::HealthReporter};

use crate::dispatch::Served;

/// Keeps the health service up to date until `stop`. Overload changes nothing here.
pub async fn report(
    reporter: HealthReporter,
    mut served: watch::Receiver<Arc<Served>>,
    mut stalled: watch::Receiver<bool>,
    drain: CancellationToken,
    stop: CancellationToken,
) {
    let status = |on| if on { ServingStatus::Serving } else { ServingStatus::NotServing };
    reporter.set_service_status(LIVE, ServingStatus::Serving).await;
    let mut was_ready = None;
    loop {
        let engines = served.borrow_and_update().engines;
        let is_stalled = *stalled.borrow_and_update();
        let draining = drain.is_cancelled();
        let ready = engines > 0 && !is_stalled && !draining;
        reporter.set_service_status(READY, status(ready)).await;
        reporter.set_service_status("", status(ready)).await;
        reporter.set_service_status(DRAINING, status(draining)).await;
        if was_ready.replace(ready) != Some(ready) {
            tracing::info!(ready, engines, stalled = is_stalled, draining, "readiness");
        }
        tokio::select! {
            Ok(()) = served.changed() => {}
            Ok(()) = stalled.changed() => {}
            () = drain.cancelled(), if !draining => {}
            () = stop.cancelled() => return,
        }
    }
}
