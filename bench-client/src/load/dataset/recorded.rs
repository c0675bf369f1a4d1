//! What `run --jsonl-out` wrote, read back: the same arrivals, lengths and callers, to replay live or in virtual time.

use std::time::Duration;

use anyhow::Context as _;
use serde::Deserialize;

use super::{Input, Row};
use crate::target::Caller;

/// A line of the recording: what a replay needs of it, and what it is compared with. Times are ms.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Line {
    /// Which repeat.
    pub run: usize,
    /// `finished`, or how it failed.
    pub outcome: String,
    /// Intended send time, on the client's clock; of another client's request stamp 2, on the scheduler's.
    pub submit_start_ns: i64,
    /// When it was handed to the transport; unknown of another client's request.
    pub sent_ns: Option<i64>,
    /// Prompt length; unknown when it was refused before it was told.
    pub prompt_tokens: Option<u32>,
    /// Prompt tokens found in the prefix cache.
    pub cached_tokens: Option<u32>,
    /// Tokens it was allowed to generate.
    #[serde(default)]
    pub max_new_tokens: u32,
    /// Tokens it did generate.
    pub output_tokens: u32,
    /// Its tenant, as the scheduler tells tenants apart.
    pub tenant: Option<u32>,
    /// Its class, by name.
    pub class: Option<String>,
    /// How long its caller would have waited.
    pub timeout_ms: Option<f64>,
    /// Stamp 0 → 9.
    pub ttft_ms: Option<f64>,
    /// Time per output token after the first.
    pub tpot_ms: Option<f64>,
    /// End to end.
    pub latency_ms: Option<f64>,
    /// Closed loop: how long it waited for a slot.
    pub cap_wait_ms: Option<f64>,
    /// Stamp 0 → 1.
    pub client_lag_ms: Option<f64>,
    /// Stamp 1 → 2.
    pub ingress_ms: Option<f64>,
    /// Stamp 2 → 3.
    pub accept_ms: Option<f64>,
    /// Stamp 8 → 9.
    pub deliver_ms: Option<f64>,
    /// Stamp 3 → 6.
    pub queue_wait_total_ms: Option<f64>,
    /// All other fields, among them `cause_…_ms`.
    #[serde(flatten)]
    pub rest: serde_json::Map<String, serde_json::Value>,
}

impl Line {
    /// From the intended send time until it was queued, ms, where all of it is known. Of another client's request
    /// nothing is known before stamp 2, which is its send time then.
    pub fn before_ms(&self) -> Option<f64> {
        match self.sent_ns {
            None => self.accept_ms,
            Some(_) => Some(self.client_lag_ms? + self.ingress_ms? + self.accept_ms?),
        }
    }

    /// On whose behalf it was. A tenant is only known apart from others: it gets a name that tells as much.
    fn caller(&self) -> Caller {
        Caller {
            tenant: self.tenant.filter(|&tenant| tenant != 0).map(|tenant| format!("recorded-{tenant:08x}")),
            class: self.class.clone().filter(|class| !class.is_empty()),
            timeout: self.timeout_ms.and_then(|ms| Duration::try_from_secs_f64(ms / 1e3).ok()),
        }
    }

    /// Tokens it was allowed to generate, at least those it did.
    pub fn max_new(&self) -> u32 {
        self.max_new_tokens.max(self.output_tokens).max(1)
    }
}

/// The lines of a recording, in order of time.
///
/// # Errors
/// Names the line that is not of that shape.
pub fn lines(text: &str) -> anyhow::Result<Vec<Line>> {
    let parse = |(i, line): (usize, &str)| {
        serde_json::from_str(line)
            .with_context(|| format!("line {} was not written by run --jsonl-out", i + 1))
    };
    let mut lines: Vec<Line> = text
        .lines()
        .enumerate()
        .filter(|(_, line)| !line.trim().is_empty())
        .map(parse)
        .collect::<anyhow::Result<_>>()?;
    lines.sort_by_key(|line| line.submit_start_ns);
    Ok(lines)
}

/// The requests of a recording as a dataset. Those that were refused have no length to ask again and are left out.
///
/// # Errors
/// As [`lines`].
pub fn rows(text: &str) -> anyhow::Result<Vec<Row>> {
    let lines = lines(text)?;
    let first = lines.first().map_or(0, |line| line.submit_start_ns);
    let rows = lines.iter().filter_map(|line| {
        Some(Row {
            at_ns: Some(line.submit_start_ns - first),
            input: Input::Tokens(line.prompt_tokens? as usize),
            output_tokens: Some(line.output_tokens.max(1)),
            caller: line.caller(),
        })
    });
    Ok(rows.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINES: &str = r#"{"run":0,"outcome":"finished","submit_start_ns":2000,"prompt_tokens":9,"output_tokens":4,"max_new_tokens":8,"ttft_ms":1.5,"sent_ns":2100,"client_lag_ms":0.1,"ingress_ms":0.2,"accept_ms":0.3,"cause_batch_size_ms":0.7}
{"run":0,"outcome":"finished","submit_start_ns":1000,"prompt_tokens":5,"output_tokens":2,"tenant":7,"class":"batch","timeout_ms":250}
{"run":0,"outcome":"full","submit_start_ns":1500,"prompt_tokens":null,"output_tokens":0}
"#;

    #[test]
    fn a_recording_is_sent_again_in_order_of_time_without_what_was_refused() {
        let rows = rows(LINES).unwrap();
        let as_sent: Vec<_> = rows.iter().map(|r| (r.at_ns, r.input.clone(), r.output_tokens)).collect();
        assert_eq!(as_sent, [(Some(0), Input::Tokens(5), Some(2)), (Some(1000), Input::Tokens(9), Some(4))]);
    }

    #[test]
    fn a_recording_is_sent_again_on_behalf_of_the_same_callers() {
        let rows = rows(LINES).unwrap();
        let told = Caller {
            tenant: Some("recorded-00000007".into()),
            class: Some("batch".into()),
            timeout: Some(Duration::from_millis(250)),
        };
        assert_eq!([&rows[0].caller, &rows[1].caller], [&told, &Caller::default()]);
    }

    #[test]
    fn a_line_keeps_what_a_replay_is_compared_with() {
        let lines = lines(LINES).unwrap();
        let last = lines.last().unwrap();
        assert_eq!((last.max_new(), last.ttft_ms), (8, Some(1.5)));
        assert!((last.before_ms().unwrap() - 0.6).abs() < 1e-12);
        assert_eq!(last.rest["cause_batch_size_ms"], 0.7);
        assert_eq!(lines[0].before_ms(), None);
    }

    #[test]
    fn a_line_of_another_kind_is_named() {
        assert!(lines("{\"a\":1}").unwrap_err().to_string().contains("line 1"));
    }
}
