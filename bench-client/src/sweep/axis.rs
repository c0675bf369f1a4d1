//! One flag of `run` and the values it takes in turn, written `request-rate=5,10,20`.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

use crate::flags::{budget::BudgetFlags, load::LoadFlags};

/// Flags that are more load when they are larger.
const LOAD: [&str; 2] = ["request-rate", "max-concurrency"];
/// Limits of admission.
const BUDGET: [&str; 16] = [
    "prefill-max-batch-size",
    "prefill-max-tokens",
    "max-batch-size",
    "step-prefill-tokens",
    "max-active-requests",
    "max-pending",
    "decode-first",
    "prefill-admission-policy",
    "prefill-admission-lookahead",
    "prefill-force-fifo-every",
    "max-overtaking-age-ms",
    "admit-ahead",
    "kv-promise",
    "kv-margin-tokens",
    "target-itl-ms",
    "aging-ms",
];

/// A flag and its values.
#[derive(Clone, Debug, PartialEq)]
pub struct Axis {
    /// The flag, without dashes in front.
    pub flag: String,
    /// Its values; those of a load axis ascend.
    pub values: Vec<String>,
}

/// A flag and one value of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Setting {
    /// The flag, without dashes in front.
    pub flag: String,
    /// Its value.
    pub value: String,
}

impl Axis {
    /// Whether a larger value is more load.
    pub fn is_load(&self) -> bool {
        is_load(&self.flag)
    }
}

/// Whether a larger value of `flag` is more load.
pub fn is_load(flag: &str) -> bool {
    LOAD.contains(&flag)
}

impl FromStr for Axis {
    type Err = String;

    fn from_str(s: &str) -> Result<Self, String> {
        let (flag, values) = s
            .split_once('=')
            .ok_or_else(|| format!("{s:?}: write FLAG=VALUE,VALUE,… such as request-rate=5,10,20"))?;
        let flag = match flag.trim().trim_start_matches("--") {
            "policy" => "prefill-admission-policy",
            "lookahead" => "prefill-admission-lookahead",
            "force-fifo-every" => "prefill-force-fifo-every",
            other => other,
        };
        if !LOAD.iter().chain(&BUDGET).any(|known| *known == flag) {
            return Err(format!(
                "{flag:?} cannot be varied; one of {}, {}",
                LOAD.join(", "),
                BUDGET.join(", ")
            ));
        }
        let mut axis = Self { flag: flag.to_owned(), values: Vec::new() };
        for value in values.split(',').map(|v| v.trim().to_owned()) {
            let setting = Setting { flag: flag.to_owned(), value: value.clone() };
            setting.apply(&mut LoadFlags::default(), &mut BudgetFlags::default())?;
            if axis.values.contains(&value) {
                return Err(format!("{flag} {value} is given twice"));
            }
            axis.values.push(value);
        }
        if axis.is_load() {
            let number = |v: &String| v.parse::<f64>().unwrap_or(f64::NAN);
            axis.values.sort_by(|a, b| number(a).total_cmp(&number(b)));
        }
        Ok(axis)
    }
}

impl Setting {
    /// The value as a number, for a scale.
    pub fn number(&self) -> Option<f64> {
        self.value.parse().ok()
    }

    /// Sets the flag.
    ///
    /// # Errors
    /// When the value is not one that the flag takes.
    pub fn apply(&self, load: &mut LoadFlags, budget: &mut BudgetFlags) -> Result<(), String> {
        match self.flag.as_str() {
            "request-rate" => load.request_rate = Some(self.positive()?),
            "max-concurrency" => load.max_concurrency = Some(self.parse()?),
            "prefill-max-batch-size" => budget.prefill_max_batch_size = Some(self.parse()?),
            "prefill-max-tokens" => budget.prefill_max_tokens = Some(self.parse()?),
            "max-batch-size" => budget.max_batch_size = Some(self.parse()?),
            "step-prefill-tokens" => budget.step_prefill_tokens = Some(self.parse()?),
            "max-active-requests" => budget.max_active_requests = Some(self.parse()?),
            "max-pending" => budget.max_pending = Some(self.parse()?),
            "decode-first" => budget.decode_first = Some(self.parse()?),
            "prefill-admission-policy" => budget.prefill_admission_policy = Some(self.value.clone()),
            "prefill-admission-lookahead" => budget.prefill_admission_lookahead = Some(self.parse()?),
            "prefill-force-fifo-every" => budget.prefill_force_fifo_every = Some(self.parse()?),
            "max-overtaking-age-ms" => budget.max_overtaking_age_ms = Some(self.parse()?),
            "admit-ahead" => budget.admit_ahead = Some(self.parse()?),
            "kv-promise" => budget.kv_promise = Some(self.value.clone()),
            "kv-margin-tokens" => budget.kv_margin_tokens = Some(self.parse()?),
            "target-itl-ms" => budget.target_itl_ms = Some(self.positive()?),
            "aging-ms" => budget.aging_ms = Some(self.parse()?),
            other => return Err(format!("{other:?} cannot be varied")),
        }
        Ok(())
    }

    fn parse<T: FromStr<Err: fmt::Display>>(&self) -> Result<T, String> {
        self.value.parse().map_err(|e| format!("{} {:?}: {e}", self.flag, self.value))
    }

    fn positive(&self) -> Result<f64, String> {
        let number: f64 = self.parse()?;
        let good = number.is_finite() && number > 0.0;
        good.then_some(number)
            .ok_or_else(|| format!("{} {:?} must be a positive number", self.flag, self.value))
    }
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.flag, self.value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loads_ascend_and_limits_keep_their_order() {
        let axis = |s: &str| s.parse::<Axis>().unwrap().values.join(" ");
        assert_eq!(axis("request-rate=40,5,10.5"), "5 10.5 40");
        assert_eq!(axis("--max-active-requests=64,16"), "64 16");
        assert_eq!("policy=pack,fifo".parse::<Axis>().unwrap().flag, "prefill-admission-policy");
        assert_eq!("lookahead=8,32".parse::<Axis>().unwrap().flag, "prefill-admission-lookahead");
    }

    #[test]
    fn a_wrong_axis_says_what_would_be_right() {
        for (wrong, hint) in [
            ("request-rate", "write FLAG=VALUE"),
            ("speed=1,2", "one of request-rate, max-concurrency, prefill-max-batch-size"),
            ("max-batch-size=4,many", "max-batch-size \"many\""),
            ("request-rate=0", "must be a positive number"),
            ("admit-ahead=1,1", "given twice"),
        ] {
            let said = wrong.parse::<Axis>().unwrap_err();
            assert!(said.contains(hint), "{said}");
        }
    }

    #[test]
    fn every_flag_that_can_be_varied_is_set() {
        for flag in LOAD.iter().chain(&BUDGET) {
            let value = if *flag == "decode-first" { "true" } else { "7" };
            let setting = Setting { flag: (*flag).to_owned(), value: value.to_owned() };
            let (mut load, mut budget) = (LoadFlags::default(), BudgetFlags::default());
            setting.apply(&mut load, &mut budget).unwrap();
            let set =
                load.request_rate.is_some() || load.max_concurrency.is_some() || budget.change().is_some();
            assert!(set, "{flag}");
        }
    }
}
