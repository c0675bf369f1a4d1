//! Whether the client was fit to measure: one that sends late or is short of CPU measures itself.

use firstlight_proto::clock::{Clock, Stamp};
use rustix::time::{ClockId, clock_gettime};

use super::{results::Validity, stats::Samples};
use crate::selfcheck::OwnLag;

/// Lag that never matters, ns.
const SMALL_LAG_NS: f64 = 200_000.0;
/// Lag that matters, as a share of the TTFT p99 reported.
const LAG_SHARE: f64 = 0.01;
/// Share of the machine's cores above which this process was the bottleneck.
const BUSY_SHARE: f64 = 0.9;

/// What a run tells about the client itself.
#[derive(Clone, Copy, Debug, Default)]
pub struct Fitness {
    /// CPU this process used while the load ran, in cores.
    pub cpu_cores: Option<f64>,
    /// Cores this process may use.
    pub cores: usize,
    /// p99 of the lag that the client showed against a null server before the run, ns.
    pub own_send_lag_p99: Option<f64>,
    /// p99 of the time it took to notice a token of the null server, ns.
    pub own_receive_lag_p99: Option<f64>,
}

/// Measures this process's CPU time between two moments.
#[derive(Clone, Copy, Debug)]
pub struct CpuMeter {
    clock: Clock,
    from: Stamp,
    used_ns: i64,
}

impl CpuMeter {
    /// Starts now.
    pub fn start(clock: Clock) -> Self {
        Self { clock, from: clock.now(), used_ns: process_cpu_ns() }
    }

    /// The use since the start.
    pub fn stop(self) -> Fitness {
        let wall = self.clock.now().since(self.from);
        let used = process_cpu_ns() - self.used_ns;
        Fitness {
            cpu_cores: (wall > 0).then(|| used as f64 / wall as f64),
            cores: std::thread::available_parallelism().map_or(0, |n| n.get()),
            ..Fitness::default()
        }
    }
}

impl Fitness {
    /// Adds what the check against the null server found.
    pub fn with_own_lag(self, lag: Option<&OwnLag>) -> Self {
        Self {
            own_send_lag_p99: lag.and_then(|lag| lag.send.percentile(0.99)),
            own_receive_lag_p99: lag.and_then(|lag| lag.receive.percentile(0.99)),
            ..self
        }
    }
}

fn process_cpu_ns() -> i64 {
    let t = clock_gettime(ClockId::ProcessCPUTime);
    t.tv_sec * 1_000_000_000 + t.tv_nsec
}

/// Judges a run by its send lag and its use of the CPU.
pub fn judge(send_lag: &Samples, ttft: &Samples, fitness: Fitness) -> Validity {
    let lag = send_lag.percentile(0.99);
    let allowed = SMALL_LAG_NS.max(LAG_SHARE * ttft.percentile(0.99).unwrap_or(0.0));
    let mut reasons = Vec::new();
    let lags = [
        ("requests left late", lag),
        ("the client sends late even to a server that does nothing", fitness.own_send_lag_p99),
        ("the client notices tokens late even from a server that does nothing", fitness.own_receive_lag_p99),
    ];
    for (what, lag) in lags {
        if let Some(lag) = lag.filter(|&lag| lag > allowed) {
            reasons.push(format!(
                "{what}: p99 lag {:.2} ms, more than max(0.20 ms, 1 % of TTFT p99) = {:.2} ms",
                lag / 1e6,
                allowed / 1e6
            ));
        }
    }
    let limit = BUSY_SHARE * fitness.cores as f64;
    if let Some(used) = fitness.cpu_cores.filter(|&used| fitness.cores > 0 && used > limit) {
        reasons.push(format!("the client itself used {used:.2} of {} cores", fitness.cores));
    }
    Validity {
        verdict: if reasons.is_empty() { "VALID" } else { "INVALID" }.to_owned(),
        reasons,
        send_lag_p99_ms: lag.map(|ns| ns / 1e6),
        own_send_lag_p99_ms: fitness.own_send_lag_p99.map(|ns| ns / 1e6),
        own_receive_lag_p99_ms: fitness.own_receive_lag_p99.map(|ns| ns / 1e6),
        cpu_cores: fitness.cpu_cores,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lags(ns: i64) -> Samples {
        std::iter::repeat_n(ns, 100).collect()
    }

    #[test]
    fn a_lag_is_judged_against_the_ttft_it_spoils() {
        let valid = judge(&lags(4_000_000), &lags(500_000_000), Fitness::default());
        assert_eq!(valid.verdict, "VALID");
        let invalid = judge(&lags(4_000_000), &lags(100_000_000), Fitness::default());
        assert_eq!(invalid.verdict, "INVALID");
        assert!(invalid.reasons[0].contains("4.00 ms"), "{:?}", invalid.reasons);
    }

    #[test]
    fn a_small_lag_never_spoils_a_run() {
        assert_eq!(judge(&lags(150_000), &lags(1_000_000), Fitness::default()).verdict, "VALID");
    }

    #[test]
    fn a_lag_seen_against_the_null_server_counts_as_well() {
        let slow = Fitness { own_receive_lag_p99: Some(9e6), ..Fitness::default() };
        assert!(judge(&lags(0), &lags(100_000_000), slow).reasons[0].contains("notices tokens late"));
    }

    #[test]
    fn a_client_that_fills_the_machine_says_so() {
        let busy = Fitness { cpu_cores: Some(1.95), cores: 2, ..Fitness::default() };
        assert!(judge(&lags(0), &lags(0), busy).reasons[0].contains("1.95 of 2 cores"));
    }
}
