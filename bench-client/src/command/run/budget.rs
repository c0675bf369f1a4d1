//! The budget of a run: leased when flags ask for a change, otherwise read, so that the page can name
//! the limits in force.

use std::collections::BTreeMap;

use firstlight_proto::v1::{Budget, BudgetState};

use crate::{
    flags::run::RunFlags,
    observe::lease::{self, Lease},
    target::firstlight::connect,
};

/// The budget while a run lasts.
#[derive(Debug)]
pub struct Held {
    lease: Option<Lease>,
    state: Option<BudgetState>,
}

/// Leases what the flags ask for; without budget flags an admin listener that is out of reach is no error.
///
/// # Errors
/// When flags ask for a change and the scheduler cannot be asked, or refuses.
pub async fn hold(flags: &RunFlags) -> anyhow::Result<Held> {
    let admin = connect(&flags.server.admin).await;
    match flags.budget.change() {
        Some(change) => {
            let lease = Lease::take(admin?, change, &flags.output.run_label).await?;
            let state = Some(lease.state().clone());
            Ok(Held { lease: Some(lease), state })
        }
        None => {
            let state = match admin {
                Ok(admin) => lease::current(admin).await.ok(),
                Err(_) => None,
            };
            Ok(Held { lease: None, state })
        }
    }
}

impl Held {
    /// What is in force, where it could be read.
    pub fn in_force(&self) -> Option<Budget> {
        self.state.as_ref()?.budget.clone()
    }

    /// Restores what was changed and tells what was in force.
    pub async fn end(self) -> BTreeMap<String, String> {
        if let Some(lease) = self.lease {
            lease.release().await;
        }
        self.state.and_then(|s| s.budget).map(|b| limits(&b)).unwrap_or_default()
    }
}

/// The limits that matter for the policy in force, by name.
fn limits(b: &Budget) -> BTreeMap<String, String> {
    let [pack, adaptive, priority] = ["pack", "adaptive", "priority"].map(|policy| b.policy() == policy);
    let optimistic = b.kv_promise() == "optimistic";
    let number = |x: Option<u32>| x.map(|x| x.to_string());
    let mut weights: Vec<_> =
        b.class_weights.iter().map(|(class, weight)| format!("{class}={weight}")).collect();
    weights.sort();
    let all = [
        ("policy", b.policy.clone()),
        ("prefill_max_batch_size", number(b.prefill_max_batch_size)),
        ("prefill_max_tokens", number(b.prefill_max_tokens)),
        ("max_batch_size", number(b.max_batch_size)),
        ("step_prefill_tokens", number(b.step_prefill_tokens)),
        ("max_active_requests", number(b.max_active_requests)),
        ("max_pending", number(b.max_pending)),
        ("decode_first", b.decode_first.map(|x| x.to_string())),
        ("admit_ahead", number(b.admit_ahead)),
        ("kv_promise", b.kv_promise.clone()),
        ("lookahead", number(b.lookahead).filter(|_| pack)),
        ("force_fifo_every", number(b.force_fifo_every).filter(|_| pack)),
        ("max_overtaking_age_ms", number(b.max_overtaking_age_ms).filter(|_| pack)),
        ("kv_margin_tokens", number(b.kv_margin_tokens).filter(|_| optimistic)),
        ("target_itl_ms", b.target_itl_ms.filter(|_| adaptive).map(|x| x.to_string())),
        ("aging_ms", number(b.aging_ms).filter(|_| priority)),
        ("class_weights", (priority && !weights.is_empty()).then(|| weights.join(","))),
    ];
    all.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect()
}
