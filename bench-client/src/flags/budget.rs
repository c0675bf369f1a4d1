//! Limits of admission, leased for the run and restored after it.

use clap::Args;
use firstlight_proto::v1::Budget;

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
    #[arg(long, value_name = "N")]
    pub prefill_admission_lookahead: Option<u32>,
    /// pack: every n-th round is a fifo turn; 0 = never.
    #[arg(long, value_name = "N")]
    pub prefill_force_fifo_every: Option<u32>,
    /// Rounds sent to an engine and not yet begun.
    #[arg(long, value_name = "ROUNDS")]
    pub admit_ahead: Option<u32>,
    /// KV blocks promised per request: reserve or optimistic.
    #[arg(long, value_name = "WAY")]
    pub kv_promise: Option<String>,
    /// adaptive: the ITL p99 to hold, ms.
    #[arg(long, value_name = "MS")]
    pub target_itl_ms: Option<f64>,
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
            admit_ahead: self.admit_ahead,
            kv_promise: self.kv_promise.clone(),
            target_itl_ms: self.target_itl_ms,
            ..Budget::default()
        };
        (change != Budget::default()).then_some(change)
    }
}
