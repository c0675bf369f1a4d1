//! The budget as it is on the wire, and back.

use std::time::Duration;

use firstlight_proto::{
    error::{Failure, quoted},
    v1,
};

use super::budgets::ClassNames;
use crate::admission::{Budget, BudgetError, Tokens};

/// `base` with the fields that `change` sets, checked as a whole.
///
/// # Errors
/// Names the field that is out of range.
pub fn apply(base: &Budget, change: &v1::Budget, classes: &mut ClassNames) -> Result<Budget, Failure> {
    let mut next = base.clone();
    set(&mut next.prefill_max_batch_size, change.prefill_max_batch_size);
    set(&mut next.prefill_max_tokens, change.prefill_max_tokens.map(Tokens));
    set(&mut next.max_batch_size, change.max_batch_size);
    set(&mut next.step_prefill_tokens, change.step_prefill_tokens.map(Tokens));
    set(&mut next.max_active_requests, change.max_active_requests);
    set(&mut next.max_pending, change.max_pending);
    set(&mut next.decode_first, change.decode_first);
    set(&mut next.lookahead, change.lookahead);
    set(&mut next.force_fifo_every, change.force_fifo_every);
    set(&mut next.max_overtaking_age, change.max_overtaking_age_ms.map(ms));
    set(&mut next.kv_margin, change.kv_margin_tokens.map(Tokens));
    set(&mut next.admit_ahead, change.admit_ahead);
    set(&mut next.aging, change.aging_ms.map(ms));
    if let Some(policy) = &change.policy {
        next.policy = policy.parse().map_err(|reason| Failure::Invalid { field: "policy", reason })?;
    }
    if let Some(promise) = &change.kv_promise {
        next.kv_promise =
            promise.parse().map_err(|reason| Failure::Invalid { field: "kv_promise", reason })?;
    }
    if let Some(target) = change.target_itl_ms {
        next.target_itl = Duration::try_from_secs_f64(target / 1e3)
            .map_err(|e| Failure::Invalid { field: "target_itl_ms", reason: format!("{target}: {e}") })?;
    }
    if !change.class_weights.is_empty() {
        next.class_weights.clear();
        for (name, weight) in &change.class_weights {
            let class = classes.intern(name).ok_or_else(|| Failure::Invalid {
                field: "class_weights",
                reason: format!("{} is one class too many; at most {}", quoted(name), u16::MAX),
            })?;
            next.class_weights.insert(class, *weight);
        }
    }
    next.validate().map_err(invalid)?;
    Ok(next)
}

/// Every field of a budget.
pub fn to_wire(budget: &Budget, classes: &ClassNames) -> v1::Budget {
    let in_ms = |d: Duration| Some(u32::try_from(d.as_millis()).unwrap_or(u32::MAX));
    v1::Budget {
        prefill_max_batch_size: Some(budget.prefill_max_batch_size),
        prefill_max_tokens: Some(budget.prefill_max_tokens.0),
        max_batch_size: Some(budget.max_batch_size),
        step_prefill_tokens: Some(budget.step_prefill_tokens.0),
        max_active_requests: Some(budget.max_active_requests),
        max_pending: Some(budget.max_pending),
        decode_first: Some(budget.decode_first),
        policy: Some(budget.policy.to_string()),
        lookahead: Some(budget.lookahead),
        force_fifo_every: Some(budget.force_fifo_every),
        max_overtaking_age_ms: in_ms(budget.max_overtaking_age),
        kv_promise: Some(budget.kv_promise.to_string()),
        kv_margin_tokens: Some(budget.kv_margin.0),
        admit_ahead: Some(budget.admit_ahead),
        target_itl_ms: Some(budget.target_itl.as_secs_f64() * 1e3),
        class_weights: budget
            .class_weights
            .iter()
            .map(|(class, weight)| (classes.name(*class).to_owned(), *weight))
            .collect(),
        aging_ms: in_ms(budget.aging),
    }
}

/// A budget that cannot be in force, as its caller sees it.
pub fn invalid(error: BudgetError) -> Failure {
    let reason = format!("{} is out of range; {} to {}", error.value, error.least, error.most);
    Failure::Invalid { field: error.field, reason }
}

fn set<T>(field: &mut T, change: Option<T>) {
    if let Some(value) = change {
        *field = value;
    }
}

fn ms(ms: u32) -> Duration {
    Duration::from_millis(ms.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_survives_the_wire() {
        let mut classes = ClassNames::default();
        let change = v1::Budget {
            prefill_max_batch_size: Some(2),
            prefill_max_tokens: Some(3),
            max_batch_size: Some(4),
            step_prefill_tokens: Some(5),
            max_active_requests: Some(6),
            max_pending: Some(7),
            decode_first: Some(true),
            policy: Some("pack".into()),
            lookahead: Some(8),
            force_fifo_every: Some(9),
            max_overtaking_age_ms: Some(10),
            kv_promise: Some("optimistic".into()),
            kv_margin_tokens: Some(11),
            admit_ahead: Some(12),
            target_itl_ms: Some(13.5),
            class_weights: [("gold".to_owned(), 14)].into(),
            aging_ms: Some(15),
        };
        let budget = apply(&Budget::default(), &change, &mut classes).unwrap();
        assert_eq!(to_wire(&budget, &classes), change);
    }

    #[test]
    fn an_unset_field_stays_as_it_is() {
        let base = Budget { lookahead: 3, ..Budget::default() };
        assert_eq!(apply(&base, &v1::Budget::default(), &mut ClassNames::default()).unwrap(), base);
    }

    #[test]
    fn what_is_out_of_range_is_named() {
        let refuse =
            |change| apply(&Budget::default(), &change, &mut ClassNames::default()).unwrap_err().to_string();
        assert!(refuse(v1::Budget { policy: Some("lifo".into()), ..Default::default() }).contains("lifo"));
        assert!(refuse(v1::Budget { max_pending: Some(0), ..Default::default() }).contains("max_pending"));
        assert!(
            refuse(v1::Budget { target_itl_ms: Some(f64::NAN), ..Default::default() })
                .contains("target_itl_ms")
        );
    }
}
