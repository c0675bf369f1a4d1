//! `--fail-if 'ttft_p99>+5%'`: a limit on how far a figure may move before CI fails.

use std::{collections::BTreeMap, str::FromStr};

use super::{
    compare::STATISTICS,
    results::{GateResult, GateVerdict, Movement},
    side::names,
};

/// A figure and how far it may move.
#[derive(Clone, Debug, PartialEq)]
pub struct Gate {
    /// A time, a part of TTFT or a cause of waiting.
    pub name: &'static str,
    statistic: &'static str,
    limit: Limit,
    text: String,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Limit {
    Percent(f64),
    Ms(f64),
}

impl Gate {
    /// Where the whole interval of the figure's movement lies; `None` when it was not measured.
    pub fn judge(&self, figures: &BTreeMap<String, Movement>) -> Option<GateResult> {
        let movement = *figures.get(&format!("{}_{}", self.name, self.statistic))?;
        let limit_ms = match self.limit {
            Limit::Percent(percent) => movement.a_ms * percent / 100.0,
            Limit::Ms(ms) => ms,
        };
        let verdict = if movement.moved_ms - movement.half_width_ms > limit_ms {
            GateVerdict::Exceeded
        } else if movement.moved_ms + movement.half_width_ms <= limit_ms {
            GateVerdict::Within
        } else {
            GateVerdict::Undecided
        };
        Some(GateResult { fail_if: self.text.clone(), movement, limit_ms, verdict })
    }

    /// As it was written.
    pub fn text(&self) -> &str {
        &self.text
    }
}

impl FromStr for Gate {
    type Err = String;

    fn from_str(s: &str) -> Result<Self, String> {
        let form =
            || format!("{s:?}: write FIGURE>+5% or FIGURE>+10ms, such as ttft_p99>+5% or prefill_mean>+2ms");
        let (figure, limit) = s.split_once('>').ok_or_else(form)?;
        let (name, statistic) = figure.trim().rsplit_once('_').ok_or_else(form)?;
        let known = names().find(|n| *n == name).ok_or_else(|| {
            format!("{s:?}: no figure {name:?}; one of {}", names().collect::<Vec<_>>().join(", "))
        })?;
        let statistic = STATISTICS.into_iter().map(|(n, _)| n).find(|n| *n == statistic);
        let statistic =
            statistic.ok_or_else(|| format!("{s:?}: a figure ends in _mean, _p50, _p95 or _p99"))?;
        let limit = limit.trim();
        let number = |text: &str| text.trim().parse::<f64>().ok().filter(|x| x.is_finite());
        let limit = if let Some(percent) = limit.strip_suffix('%') {
            Limit::Percent(number(percent).ok_or_else(form)?)
        } else {
            Limit::Ms(limit.strip_suffix("ms").and_then(number).ok_or_else(form)?)
        };
        Ok(Self { name: known, statistic, limit, text: s.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(gate: &str, a_ms: f64, moved_ms: f64, half_width_ms: f64) -> GateVerdict {
        let movement = Movement { a_ms, b_ms: a_ms + moved_ms, moved_ms, half_width_ms, percent: None };
        let figures = BTreeMap::from([("ttft_p99".to_owned(), movement)]);
        gate.parse::<Gate>().unwrap().judge(&figures).unwrap().verdict
    }

    #[test]
    fn only_a_whole_interval_beyond_the_limit_exceeds_it() {
        assert_eq!(verdict("ttft_p99>+5%", 500.0, 41.0, 9.0), GateVerdict::Exceeded);
        assert_eq!(verdict("ttft_p99>+5%", 500.0, 30.0, 9.0), GateVerdict::Undecided);
        assert_eq!(verdict("ttft_p99>+5%", 500.0, -3.0, 9.0), GateVerdict::Within);
        assert_eq!(verdict("ttft_p99 > 50ms", 500.0, 41.0, 9.0), GateVerdict::Within);
    }

    #[test]
    fn parts_and_causes_can_be_limited_too() {
        for good in
            ["prefill_mean>+2ms", "batch_size_mean>+1%", "queue_wait_total_p99>0%", "unexplained_p50>1ms"]
        {
            good.parse::<Gate>().unwrap();
        }
    }

    #[test]
    fn a_wrong_gate_says_what_would_be_right() {
        for (wrong, hint) in [
            ("ttft_p99", "write FIGURE>+5%"),
            ("ttft_p99>5", "write FIGURE>+5%"),
            ("speed_p99>5%", "no figure \"speed\"; one of ttft"),
            ("ttft_p90>5%", "_mean, _p50, _p95 or _p99"),
        ] {
            let said = wrong.parse::<Gate>().unwrap_err();
            assert!(said.contains(hint), "{said}");
        }
    }
}
