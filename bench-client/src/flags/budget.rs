//! Limits of admission, leased for the run and restored after it.

use clap::Args;
use firstlight_proto::v1::Budget;
use scheduler_svc::cli::class_weight;

/// Budget overrides; what is not given stays as the scheduler has it.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Budget (leased for the run, restored after it)")]
pub struct BudgetFlags {
    /// Requests admitted per round.
    #[arg(long, value_name = "N")]
    pub prefill_max_batch_size: Option<u32>,
    /// Prompt tokens admitted per round.
    #[arg(long, value_name = "TOKENS")]
    pub prefill_max_tokens: Option<u32>,
    /// Rows of one decode forward.
    #[arg(long, value_name = "N")]
    pub max_batch_size: Option<u32>,
    /// Prompt tokens of one prefill forward.
    #[arg(long, value_name = "TOKENS")]
    pub step_prefill_tokens: Option<u32>,
    /// Requests admitted and not finished.
    #[arg(long, value_name = "N")]
    pub max_active_requests: Option<u32>,
    /// Requests waiting; more are refused.
    #[arg(long, value_name = "N")]
    pub max_pending: Option<u32>,
    /// Decode before prefill within a step.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true")]
    pub decode_first: Option<bool>,
    /// fifo, pack, priority, fair, deadline or adaptive.
    #[arg(long, visible_alias = "policy", value_name = "POLICY")]
    pub prefill_admission_policy: Option<String>,
    /// pack: requests looked at per round.
    #[arg(long, visible_alias = "lookahead", value_name = "N")]
    pub prefill_admission_lookahead: Option<u32>,
    /// pack: every n-th round is a fifo turn; 0 = never.
    #[arg(long, visible_alias = "force-fifo-every", value_name = "N")]
    pub prefill_force_fifo_every: Option<u32>,
    /// pack: a head that has waited longer makes the next round a fifo turn; 0 = no such bound.
    #[arg(long, value_name = "MS")]
    pub max_overtaking_age_ms: Option<u32>,
    /// Rounds sent to an engine and not yet begun.
    #[arg(long, value_name = "ROUNDS")]
    pub admit_ahead: Option<u32>,
    /// KV blocks promised per request: reserve or optimistic.
    #[arg(long, value_name = "WAY")]
    pub kv_promise: Option<String>,
    /// optimistic: tokens promised beyond the prompt.
    #[arg(long, value_name = "TOKENS")]
    pub kv_margin_tokens: Option<u32>,
    /// adaptive: the ITL p99 to hold, ms.
    #[arg(long, value_name = "MS")]
    pub target_itl_ms: Option<f64>,
    /// priority: weight of a class; repeatable, and classes that are not named weigh 1.
    #[arg(long, value_name = "CLASS=N", value_delimiter = ',', value_parser = class_weight)]
    pub class_weights: Vec<(String, u32)>,
    /// priority: a waiting request gains one unit of weight per this time; 0 = no aging.
    #[arg(long, value_name = "MS")]
    pub aging_ms: Option<u32>,
}

impl BudgetFlags {
    /// The change to lease; `None` when no flag was given.
    pub fn change(&self) -> Option<Budget> {
        let change = Budget {
            prefill_max_batch_size: self.prefill_max_batch_size,
            prefill_max_tokens: self.prefill_max_tokens,
            max_batch_size: self.max_batch_size,
            step_prefill_tokens: self.step_prefill_tokens,
            max_active_requests: self.max_active_requests,
            max_pending: self.max_pending,
            decode_first: self.decode_first,
            policy: self.prefill_admission_policy.clone(),
            lookahead: self.prefill_admission_lookahead,
            force_fifo_every: self.prefill_force_fifo_every,
            max_overtaking_age_ms: self.max_overtaking_age_ms,
            kv_promise: self.kv_promise.clone(),
            kv_margin_tokens: self.kv_margin_tokens,
            admit_ahead: self.admit_ahead,
            target_itl_ms: self.target_itl_ms,
            class_weights: self.class_weights.iter().cloned().collect(),
            aging_ms: self.aging_ms,
        };
        (change != Budget::default()).then_some(change)
    }
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory as _, Parser};

    use super::*;
    use crate::whatif::budgets;

    #[derive(Parser)]
    struct Alone {
        #[command(flatten)]
        budget: BudgetFlags,
    }

    /// Every flag of a budget, with a value.
    fn all() -> Vec<String> {
        let flags = Alone::command();
        let named = flags.get_arguments().filter_map(|arg| arg.get_long()).filter(|name| *name != "help");
        let value = |name: &str| match name {
            "decode-first" => "true",
            "class-weights" => "gold=3,silver=2",
            _ => "7",
        };
        named.map(|name| format!("--{name}={}", value(name))).collect()
    }

    #[test]
    fn every_limit_of_the_wire_can_be_leased() {
        let words = ["run".to_owned()].into_iter().chain(all());
        let change = Alone::parse_from(words).budget.change().unwrap();
        let serde_json::Value::Object(fields) = serde_json::to_value(&change).unwrap() else {
            panic!("{change:?}")
        };
        let unset: Vec<_> = fields.keys().filter(|name| !budgets::set(&change).contains_key(*name)).collect();
        assert!(unset.is_empty(), "no flag for {unset:?}");
        assert_eq!(change.class_weights.get("silver"), Some(&2));
    }

    #[test]
    fn flags_may_be_spelled_as_the_scheduler_does() {
        let theirs =
            Alone::parse_from(["run", "--policy=pack", "--lookahead=8", "--force-fifo-every=4"]).budget;
        assert_eq!(theirs.prefill_admission_policy.as_deref(), Some("pack"));
        assert_eq!((theirs.prefill_admission_lookahead, theirs.prefill_force_fifo_every), (Some(8), Some(4)));
    }

    #[test]
    fn what_is_not_given_changes_nothing() {
        assert_eq!(BudgetFlags::default().change(), None);
    }
}
