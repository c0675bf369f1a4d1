//! Notices from outside the core when requests could be admitted and are not. Overload alone never does:
//! then the budget, credit or blocks keep them out, and the core says so.

use std::{sync::Arc, time::Duration};

use firstlight_proto::clock::Stamp;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::{
    admission::Liveness,
    dispatch::{Dispatch, Dispatcher},
    telemetry::Telemetry,
};

/// Looks until `stop`; `stalled` tells what it found.
pub async fn run(
    dispatcher: Dispatcher,
    telemetry: Arc<Telemetry>,
    limit: Duration,
    stalled: watch::Sender<bool>,
    stop: CancellationToken,
) {
    let mut watch = Watch { limit, stuck_since: None };
    let mut tick = tokio::time::interval((limit / 4).max(Duration::from_millis(10)));
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    while stop.run_until_cancelled(tick.tick()).await.is_some() {
        let answer = tokio::time::timeout(limit, dispatcher.with(Dispatch::liveness)).await;
        let Ok(Ok(liveness)) = answer else {
            // It stops, or it has not answered for the whole limit.
            if answer.is_err() {
                judge(&stalled, &telemetry, true, "the dispatch task does not answer");
            }
            continue;
        };
        let stuck = watch.is_stuck(&liveness, telemetry.clock.now());
        let state = match stuck && !*stalled.borrow() {
            true => dispatcher
                .with(Dispatch::dump)
                .await
                .map_or_else(|e| e.to_string(), |dump| format!("{dump:?}")),
            false => String::new(),
        };
        judge(&stalled, &telemetry, stuck, &state);
    }
}

/// Whether admission is stuck, judged over time.
struct Watch {
    limit: Duration,
    stuck_since: Option<Stamp>,
}

impl Watch {
    /// Stuck: at every look for `limit`, a request could have been admitted, and none was.
    fn is_stuck(&mut self, liveness: &Liveness, now: Stamp) -> bool {
        if !liveness.should_admit() {
            self.stuck_since = None;
            return false;
        }
        let since = self.stuck_since.get_or_insert(now);
        *since = (*since).max(liveness.last_admission);
        now.saturating_since(*since) >= self.limit
    }
}

fn judge(stalled: &watch::Sender<bool>, telemetry: &Telemetry, now_stalled: bool, state: &str) {
    let changed = stalled.send_if_modified(|was| std::mem::replace(was, now_stalled) != now_stalled);
    if !changed {
        return;
    }
    telemetry.metrics.stalled.set(if now_stalled { 1.0 } else { 0.0 });
    if now_stalled {
        telemetry.metrics.stalls.increment(1);
        tracing::error!(state, "admission is stuck: requests wait, nothing keeps them out, none is admitted");
    } else {
        tracing::info!("admission goes on");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(5);

    fn at(s: i64) -> Stamp {
        Stamp::from_ns(s * 1_000_000_000)
    }

    fn free(last_admission: i64) -> Liveness {
        Liveness {
            waiting: true,
            engine_attached: true,
            credit: true,
            budget_free: true,
            last_admission: at(last_admission),
        }
    }

    fn looks(looks: &[(i64, Liveness)]) -> Vec<bool> {
        let mut watch = Watch { limit: LIMIT, stuck_since: None };
        looks.iter().map(|(s, liveness)| watch.is_stuck(liveness, at(*s))).collect()
    }

    #[test]
    fn a_request_that_nothing_keeps_out_for_the_limit_is_a_stall() {
        assert_eq!(looks(&[(10, free(0)), (14, free(0)), (15, free(0))]), [false, false, true]);
    }

    #[test]
    fn overload_is_no_stall() {
        let full = Liveness { budget_free: false, ..free(0) };
        assert_eq!(looks(&[(10, full), (100, full), (1000, full)]), [false; 3]);
    }

    #[test]
    fn an_admission_starts_the_limit_anew() {
        assert_eq!(looks(&[(10, free(0)), (16, free(14)), (19, free(14))]), [false, false, true]);
    }

    #[test]
    fn a_pause_in_between_starts_the_limit_anew() {
        let full = Liveness { budget_free: false, ..free(0) };
        assert_eq!(looks(&[(10, free(0)), (14, full), (16, free(0))]), [false; 3]);
    }
}
