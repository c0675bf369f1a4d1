//! Goodput: requests per second that meet every objective. Failed requests meet none.

use std::{fmt, str::FromStr};

use crate::target::Record;

/// Objectives, written `ttft=500ms,itl=50ms,tpot=60ms,latency=5s`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Slo {
    ttft_ns: Option<i64>,
    tpot_ns: Option<i64>,
    /// No gap between two messages may be longer.
    itl_ns: Option<i64>,
    latency_ns: Option<i64>,
}

/// What a request that completed is judged by, ns; `None` where there is nothing to judge.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Judged {
    /// First token − intended send time.
    pub ttft_ns: Option<i64>,
    /// Time per token after the first.
    pub tpot_ns: Option<i64>,
    /// Longest gap between two messages.
    pub longest_gap_ns: Option<i64>,
    /// End − intended send time.
    pub latency_ns: Option<i64>,
}

impl Slo {
    /// Whether a request completed within every objective.
    pub fn met(&self, r: &Record) -> bool {
        let judged = Judged {
            ttft_ns: r.ttft_ns(),
            tpot_ns: r.tpot_ns(),
            longest_gap_ns: r.gaps().map(|g| g.0).max(),
            latency_ns: r.latency_ns(),
        };
        r.completed() && r.first_token().is_some() && self.holds(judged)
    }

    /// Whether gaps between messages are judged.
    pub fn judges_gaps(&self) -> bool {
        self.itl_ns.is_some()
    }

    /// Whether a completed request is within every objective.
    pub fn holds(&self, judged: Judged) -> bool {
        let within =
            |most: Option<i64>, value: Option<i64>| most.is_none_or(|m| value.is_none_or(|v| v <= m));
        within(self.ttft_ns, judged.ttft_ns)
            && within(self.tpot_ns, judged.tpot_ns)
            && within(self.itl_ns, judged.longest_gap_ns)
            && within(self.latency_ns, judged.latency_ns)
    }
}

impl FromStr for Slo {
    type Err = String;

    fn from_str(s: &str) -> Result<Self, String> {
        let mut slo = Self::default();
        for part in s.split(',') {
            let wrong =
                || format!("{part:?} is no objective; write ttft=500ms, tpot=60ms, itl=50ms or latency=5s");
            let (name, value) = part.split_once('=').ok_or_else(wrong)?;
            let ns = duration_ns(value).ok_or_else(wrong)?;
            let slot = match name.trim() {
                "ttft" => &mut slo.ttft_ns,
                "tpot" => &mut slo.tpot_ns,
                "itl" => &mut slo.itl_ns,
                "latency" | "e2el" => &mut slo.latency_ns,
                _ => return Err(wrong()),
            };
            *slot = Some(ns);
        }
        Ok(slo)
    }
}

impl fmt::Display for Slo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all = [
            ("ttft", self.ttft_ns),
            ("tpot", self.tpot_ns),
            ("itl", self.itl_ns),
            ("latency", self.latency_ns),
        ];
        let set = all.iter().filter_map(|(name, ns)| Some(format!("{name} ≤ {} ms", (*ns)? as f64 / 1e6)));
        f.write_str(&set.collect::<Vec<_>>().join(", "))
    }
}

/// Reads a time with its unit: `500ms`, `2s`.
pub fn duration_ns(s: &str) -> Option<i64> {
    let s = s.trim();
    let units = [("ms", 1e6), ("us", 1e3), ("µs", 1e3), ("s", 1e9)];
    let (number, unit) = units.iter().find_map(|(unit, ns)| Some((s.strip_suffix(unit)?, ns)))?;
    let value: f64 = number.trim().parse().ok()?;
    (value.is_finite() && value > 0.0).then_some((value * unit) as i64)
}

#[cfg(test)]
mod tests {
    use firstlight_proto::clock::Stamp;

    use super::*;
    use crate::target::{Arrival, Outcome};

    fn record(arrivals_ms: &[i64]) -> Record {
        let mut r = Record::new("r".into(), 0, 0, Stamp::from_ns(0));
        let at = |ms: &i64| Arrival { at: Stamp::from_ns(ms * 1_000_000), tokens: 1 };
        r.arrivals = arrivals_ms.iter().map(at).collect();
        r.ended = r.last_token();
        r.outcome = Outcome::Finished;
        r
    }

    #[test]
    fn every_objective_must_be_met() {
        let slo: Slo = "ttft=100ms,itl=50ms".parse().unwrap();
        assert!(slo.met(&record(&[100, 150, 200])));
        assert!(!slo.met(&record(&[101, 150])));
        assert!(!slo.met(&record(&[50, 101])));
    }

    #[test]
    fn a_failed_request_meets_nothing() {
        let mut failed = record(&[1, 2]);
        failed.outcome = Outcome::Failed { kind: "full", message: String::new() };
        assert!(!"latency=10s".parse::<Slo>().unwrap().met(&failed));
    }

    #[test]
    fn an_objective_without_unit_or_name_is_refused() {
        for wrong in ["ttft=500", "ttft", "speed=5ms", "itl=-1ms"] {
            assert!(wrong.parse::<Slo>().unwrap_err().contains("ttft=500ms"), "{wrong}");
        }
    }
}
