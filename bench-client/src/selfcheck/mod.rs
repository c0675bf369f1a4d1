//! The client certifies itself: before a run it sends the same load to a server in this process that
//! answers at once, over real sockets. What that takes is the client's own doing.
//!
//! - [`null_server`]: the server that answers at once

pub mod null_server;

use std::sync::Arc;

use anyhow::Context as _;
use firstlight_proto::clock::{Clock, Stamp};
use tokio_util::sync::CancellationToken;

use crate::{
    load::{
        drive::{Bench, Plan, drive},
        live::Live,
        pacer::Due,
    },
    report::stats::Samples,
    target::{Ask, Firstlight, Prompt, Record, Target, firstlight::Common},
};

/// The check covers the load's first second, and this many requests at most.
const COVERED_NS: i64 = 1_000_000_000;
const AT_MOST: usize = 2_000;

/// The client's own lag, from its exchange with the null server.
#[derive(Clone, Debug, Default)]
pub struct OwnLag {
    /// Sent − intended send time.
    pub send: Samples,
    /// Arrival of the first token at the client − its hand-over by the server.
    pub receive: Samples,
}

/// A bench whose target is a null server of its own, over `channels` connections, until `stop`. The server
/// holds every stream open until `held` of them are, and answers at once when that is 0.
///
/// # Errors
/// When the null server cannot listen.
pub async fn null_bench(
    clock: Clock,
    channels: usize,
    held: usize,
    stop: CancellationToken,
) -> anyhow::Result<Bench> {
    let addr = null_server::start_holding(held, clock, stop).await.context("starting the null server")?;
    let server = Firstlight::connect(&addr.to_string(), channels, clock, Common::default()).await?;
    Ok(Bench {
        target: Arc::new(Target::Firstlight(server)),
        clock,
        injections: Default::default(),
        live: Arc::new(Live::default()),
        stop: CancellationToken::new(),
    })
}

/// Sends the head of the load `due` to a null server over `channels` connections and measures the lag.
///
/// # Errors
/// When the null server cannot listen, or a request to it fails.
pub async fn check(clock: Clock, due: &Due, channels: usize) -> anyhow::Result<OwnLag> {
    let stop = CancellationToken::new();
    let _ended = stop.clone().drop_guard();
    let bench = null_bench(clock, channels, 0, stop).await?;
    let due = head(due);
    let count = match &due {
        Due::At(times) => times.len(),
        Due::AfterPrevious { count, .. } => *count,
    };
    let plan = |name: &str, due: Due, count: usize| Plan {
        due,
        asks: vec![Ask::new(Prompt::Ids(vec![1]), 1); count],
        max_concurrency: None,
        hang_ups: None,
        id_prefix: name.to_owned(),
        run: 0,
    };
    // The first requests pay for opening connections, as those of a warm-up do.
    drive(&bench, plan("warm", Due::At(vec![0; channels]), channels)).await;
    let records = drive(&bench, plan("check", due, count)).await;
    let failed = records.iter().find(|r| !r.completed());
    anyhow::ensure!(failed.is_none(), "the null server failed a request: {:?}", failed.map(|r| &r.outcome));
    Ok(OwnLag {
        send: records.iter().filter_map(|r| Some(r.sent?.since(r.submit_start))).collect(),
        receive: records.iter().filter_map(receive_lag).collect(),
    })
}

fn receive_lag(record: &Record) -> Option<i64> {
    let emitted = record.timeline.as_ref()?.scheduler.as_ref()?.first_token_ns;
    Some(record.first_token()?.since(Stamp::from_wire(emitted)?))
}

fn head(due: &Due) -> Due {
    match due {
        Due::At(times) => {
            Due::At(times.iter().copied().take_while(|&t| t <= COVERED_NS).take(AT_MOST).collect())
        }
        Due::AfterPrevious { count, gap } => {
            let covered = (COVERED_NS as u128 / gap.as_nanos().max(1)) as usize + 1;
            Due::AfterPrevious { count: (*count).min(covered).min(AT_MOST), gap: *gap }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_check_covers_the_head_of_the_load_only() {
        assert_eq!(head(&Due::At(vec![0, COVERED_NS, COVERED_NS + 1])), Due::At(vec![0, COVERED_NS]));
        assert_eq!(head(&Due::At(vec![0; 5_000])), Due::At(vec![0; AT_MOST]));
        let gap = std::time::Duration::from_millis(100);
        let cut = head(&Due::AfterPrevious { count: 50, gap });
        assert_eq!(cut, Due::AfterPrevious { count: 11, gap });
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn every_request_to_the_null_server_has_its_two_lags() {
        let lag = check(Clock::new(), &Due::At(vec![0; 20]), 2).await.unwrap();
        assert_eq!((lag.send.len(), lag.receive.len()), (20, 20));
        assert!(lag.send.percentile(0.0).unwrap() >= 0.0 && lag.receive.percentile(0.0).unwrap() >= 0.0);
    }
}
