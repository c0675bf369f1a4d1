//! The budget: every limit of admission and the policy, checked as a whole.

use std::{collections::BTreeMap, fmt, str::FromStr, time::Duration};

use firstlight_proto::error::quoted;

use super::request::{Blocks, Class, Tokens};

/// The limits in force. All of them may change at run time, all or nothing
/// ([`set_budget`](super::Admission::set_budget)).
#[derive(Clone, Debug, PartialEq)]
pub struct Budget {
    /// Requests per round, ≥ 1.
    pub prefill_max_batch_size: u32,
    /// Prompt tokens per round, ≥ 1; a first request larger than this goes alone.
    pub prefill_max_tokens: Tokens,
    /// Rows of one decode forward, ≥ 1. Enforced by the engine.
    pub max_batch_size: u32,
    /// Prompt tokens of one prefill forward, ≥ 1. Enforced by the engine; `adaptive` moves it below this.
    pub step_prefill_tokens: Tokens,
    /// Requests admitted and not finished over all engines, ≥ 1.
    pub max_active_requests: u32,
    /// Requests waiting, ≥ 1; beyond it requests are refused.
    pub max_pending: u32,
    /// KV blocks used of each engine's pool; `None` is all of it.
    pub kv_blocks: Option<Blocks>,
    /// Decode before prefill within a step. Enforced by the engine.
    pub decode_first: bool,
    /// Who goes next.
    pub policy: Policy,
    /// `pack`: requests looked at per round, ≥ 1.
    pub lookahead: u32,
    /// `pack`: every n-th round is a fifo turn; 0 = never.
    pub force_fifo_every: u32,
    /// `pack`: a head that has been passed over for longer makes the next round a fifo turn; zero = no such bound.
    pub max_overtaking_age: Duration,
    /// What a request is promised of the pool when it is admitted.
    pub kv_promise: KvPromise,
    /// `optimistic`: tokens promised beyond the prompt.
    pub kv_margin: Tokens,
    /// Rounds sent to an engine and not yet begun, ≥ 1.
    pub admit_ahead: u32,
    /// `adaptive`: the ITL p99 to hold, > 0.
    pub target_itl: Duration,
    /// `priority`: weight of each class, ≥ 1; a class not named here weighs 1.
    pub class_weights: BTreeMap<Class, u32>,
    /// `priority`: a waiting request gains one unit of weight per this time; zero = no aging.
    pub aging: Duration,
}

impl Default for Budget {
    fn default() -> Self {
        Self {
            prefill_max_batch_size: 16,
            prefill_max_tokens: Tokens(2048),
            max_batch_size: 64,
            step_prefill_tokens: Tokens(2048),
            max_active_requests: 256,
            max_pending: 16_384,
            kv_blocks: None,
            decode_first: false,
            policy: Policy::Fifo,
            lookahead: 64,
            force_fifo_every: 8,
            max_overtaking_age: Duration::from_secs(1),
            kv_promise: KvPromise::Reserve,
            kv_margin: Tokens(64),
            admit_ahead: 1,
            target_itl: Duration::from_millis(50),
            class_weights: BTreeMap::new(),
            aging: Duration::from_millis(100),
        }
    }
}

impl Budget {
    /// Largest `lookahead`: what a round may examine is bounded.
    pub const MAX_LOOKAHEAD: u32 = 4096;
    /// Longest duration of any field: keeps all sums of stamps within an i64.
    pub const MAX_DURATION: Duration = Duration::from_secs(86_400);
    /// Largest class weight.
    pub const MAX_WEIGHT: u32 = 10_000;

    /// Checks every field and names the first that is out of range.
    pub fn validate(&self) -> Result<(), BudgetError> {
        let at_least_one = [
            ("prefill_max_batch_size", self.prefill_max_batch_size),
            ("prefill_max_tokens", self.prefill_max_tokens.0),
            ("max_batch_size", self.max_batch_size),
            ("step_prefill_tokens", self.step_prefill_tokens.0),
            ("max_active_requests", self.max_active_requests),
            ("max_pending", self.max_pending),
            ("kv_blocks", self.kv_blocks.map_or(1, |b| b.0)),
            ("lookahead", self.lookahead),
            ("admit_ahead", self.admit_ahead),
            ("class_weights", self.class_weights.values().copied().min().unwrap_or(1)),
        ];
        for (field, value) in at_least_one {
            within(field, value.into(), 1, u32::MAX.into())?;
        }
        let weight = self.class_weights.values().copied().max().unwrap_or(1);
        within("lookahead", self.lookahead.into(), 1, Self::MAX_LOOKAHEAD.into())?;
        within("class_weights", weight.into(), 1, Self::MAX_WEIGHT.into())?;
        let longest = Self::MAX_DURATION.as_nanos();
        within("target_itl_ms", self.target_itl.as_nanos(), 1, longest)?;
        within("aging_ms", self.aging.as_nanos(), 0, longest)?;
        within("max_overtaking_age_ms", self.max_overtaking_age.as_nanos(), 0, longest)
    }

    /// The weight of a class.
    pub fn weight(&self, class: Class) -> u32 {
        self.class_weights.get(&class).copied().unwrap_or(1)
    }
}

fn within(field: &'static str, value: u128, least: u128, most: u128) -> Result<(), BudgetError> {
    if (least..=most).contains(&value) { Ok(()) } else { Err(BudgetError { field, value, least, most }) }
}

/// A budget that cannot be in force. Nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field} is {value}, must be {least} to {most}")]
pub struct BudgetError {
    /// The field, by its name on the wire.
    pub field: &'static str,
    /// Its value (durations in ns).
    pub value: u128,
    /// Least value allowed.
    pub least: u128,
    /// Greatest value allowed.
    pub most: u128,
}

/// Who goes next. Each has a file under `policy/`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Policy {
    /// In order of arrival while the batch fits.
    Fifo,
    /// Fills the token budget from the first `lookahead` requests.
    Pack,
    /// Classes by weight, with aging.
    Priority,
    /// Tenants by tokens served.
    Fair,
    /// Earliest deadline first; refuses what cannot make it.
    Deadline,
    /// In order of arrival; moves `step_prefill_tokens` to hold `target_itl`.
    Adaptive,
}

impl Policy {
    /// Every policy.
    pub const ALL: [Self; 6] =
        [Self::Fifo, Self::Pack, Self::Priority, Self::Fair, Self::Deadline, Self::Adaptive];

    /// Its name in flags, JSON and on the wire.
    pub fn name(self) -> &'static str {
        match self {
            Self::Fifo => "fifo",
            Self::Pack => "pack",
            Self::Priority => "priority",
            Self::Fair => "fair",
            Self::Deadline => "deadline",
            Self::Adaptive => "adaptive",
        }
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Policy {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|p| p.name() == name).ok_or_else(|| {
            let names = Self::ALL.map(Self::name).join(", ");
            format!("policy {} is none of {names}", quoted(name))
        })
    }
}

/// What a request is promised of the KV pool when it is admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum KvPromise {
    /// The worst case, prompt + `max_new_tokens`: never preempted.
    Reserve,
    /// Prompt + `kv_margin_tokens`: more requests at once; the youngest is preempted when the pool runs dry.
    Optimistic,
}

impl KvPromise {
    /// Its name in flags, JSON and on the wire.
    pub fn name(self) -> &'static str {
        match self {
            Self::Reserve => "reserve",
            Self::Optimistic => "optimistic",
        }
    }
}

impl fmt::Display for KvPromise {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for KvPromise {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        [Self::Reserve, Self::Optimistic]
            .into_iter()
            .find(|p| p.name() == name)
            .ok_or_else(|| format!("kv_promise {} is none of reserve, optimistic", quoted(name)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_budget_is_valid() {
        assert_eq!(Budget::default().validate(), Ok(()));
    }

    #[test]
    fn a_budget_out_of_range_names_the_field() {
        let zero = Budget { max_active_requests: 0, ..Budget::default() };
        assert_eq!(zero.validate().unwrap_err().field, "max_active_requests");
        let weightless = Budget { class_weights: [(Class(3), 0)].into(), ..Budget::default() };
        assert_eq!(weightless.validate().unwrap_err().field, "class_weights");
    }

    #[test]
    fn names_of_policies_read_back() {
        for policy in Policy::ALL {
            assert_eq!(policy.name().parse(), Ok(policy));
        }
        assert!("lifo".parse::<Policy>().is_err());
    }
}
