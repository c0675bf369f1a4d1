//! Two budgets: the base, and what a lease makes of it while it lives. A lease is how a benchmark changes
//! the budget for its run: when it is killed, its lease expires and the base is back.

use std::{collections::BTreeMap, time::Duration};

use firstlight_proto::{
    clock::Stamp,
    error::{Failure, quoted},
    v1,
};

use super::budget_wire;
use crate::admission::{Budget, Class};

/// Longest time to live of a lease, ms.
pub const MAX_TTL_MS: u64 = 600_000;

/// Base budget, lease, and the names of classes that they mention.
#[derive(Clone, Debug)]
pub struct Budgets {
    base: Budget,
    in_force: Budget,
    lease: Option<Lease>,
    classes: ClassNames,
}

#[derive(Clone, Debug)]
struct Lease {
    id: String,
    holder: String,
    expires: Stamp,
    change: v1::Budget,
}

/// Why a lease was not given, renewed or released.
#[derive(Debug, thiserror::Error)]
pub enum LeaseError {
    /// One lease at a time.
    #[error("lease {id} of {} is in force for another {remaining_ms} ms; one lease at a time", quoted(.holder))]
    Taken {
        /// The lease in force.
        id: String,
        /// Who holds it.
        holder: String,
        /// Its time left.
        remaining_ms: u64,
    },
    /// That lease has expired, was released or never was.
    #[error("lease {} is not in force (it may have expired); ask for a new one with an empty lease_id", quoted(.0))]
    Gone(String),
    /// The request itself is wrong.
    #[error(transparent)]
    Invalid(#[from] Failure),
}

impl Budgets {
    /// The defaults with `change` applied, and no lease.
    ///
    /// # Errors
    /// Names the field that is out of range.
    pub fn new(change: &v1::Budget) -> Result<Self, Failure> {
        let mut classes = ClassNames::default();
        let base = budget_wire::apply(&Budget::default(), change, &mut classes)?;
        Ok(Self { in_force: base.clone(), base, lease: None, classes })
    }

    /// The base with `change` applied; nothing comes into force.
    ///
    /// # Errors
    /// Names the field that is out of range.
    pub fn with(&self, change: &v1::Budget) -> Result<Budget, Failure> {
        budget_wire::apply(&self.base, change, &mut self.classes.clone())
    }

    /// What admission goes by.
    pub fn in_force(&self) -> &Budget {
        &self.in_force
    }

    /// Whether a lease is in force.
    pub fn is_leased(&self) -> bool {
        self.lease.is_some()
    }

    /// The class of that name; names that no budget mentions share one.
    pub fn class(&self, name: &str) -> Class {
        self.classes.get(name)
    }

    /// When the lease ends.
    pub fn lease_expiry(&self) -> Option<Stamp> {
        self.lease.as_ref().map(|lease| lease.expires)
    }

    /// Changes the base, all or nothing. A lease stays in force over it.
    ///
    /// # Errors
    /// Names the field that is out of range.
    pub fn set(&mut self, change: &v1::Budget) -> Result<(), Failure> {
        let mut next = self.clone();
        next.base = budget_wire::apply(&self.base, change, &mut next.classes)?;
        next.renew_in_force()?;
        *self = next;
        Ok(())
    }

    /// Gives or renews a lease; its id.
    ///
    /// # Errors
    /// When another is in force, the one to renew is gone, or a field is out of range.
    pub fn lease(&mut self, request: v1::LeaseBudgetRequest, now: Stamp) -> Result<String, LeaseError> {
        let v1::LeaseBudgetRequest { change, ttl_ms, lease_id, holder } = request;
        if !(1..=MAX_TTL_MS).contains(&ttl_ms) {
            let reason = format!("{ttl_ms} ms; 1 to {MAX_TTL_MS}");
            return Err(Failure::Invalid { field: "ttl_ms", reason }.into());
        }
        let mut next = self.clone();
        // Of the copy only: after a refusal the end of a lease is still the timer's to find and to tell.
        next.expire(now);
        let before = match next.lease.take() {
            Some(lease) if lease.id == lease_id => Some(lease),
            Some(Lease { id, holder, expires, .. }) if lease_id.is_empty() => {
                let remaining_ms = expires.saturating_since(now).as_millis() as u64;
                return Err(LeaseError::Taken { id, holder, remaining_ms });
            }
            None if lease_id.is_empty() => None,
            _ => return Err(LeaseError::Gone(lease_id)),
        };
        next.lease = Some(Lease {
            id: before.as_ref().map_or_else(|| uuid::Uuid::now_v7().to_string(), |lease| lease.id.clone()),
            holder: if holder.is_empty() {
                before.as_ref().map_or(holder, |l| l.holder.clone())
            } else {
                holder
            },
            expires: now + Duration::from_millis(ttl_ms),
            change: change.or(before.map(|lease| lease.change)).unwrap_or_default(),
        });
        next.renew_in_force()?;
        *self = next;
        Ok(self.lease.as_ref().expect("just given").id.clone())
    }

    /// Ends a lease.
    ///
    /// # Errors
    /// When it is not in force.
    pub fn release(&mut self, id: &str) -> Result<(), LeaseError> {
        if self.lease.as_ref().is_none_or(|lease| lease.id != id) {
            return Err(LeaseError::Gone(id.to_owned()));
        }
        self.lease = None;
        self.in_force = self.base.clone();
        Ok(())
    }

    /// Ends the lease if its time is up; whether it did.
    pub fn expire(&mut self, now: Stamp) -> bool {
        let over = self.lease.as_ref().is_some_and(|lease| lease.expires <= now);
        if over {
            self.lease = None;
            self.in_force = self.base.clone();
        }
        over
    }

    /// As told to operators; `version` is the core's.
    pub fn state(&self, version: u64, now: Stamp) -> v1::BudgetState {
        v1::BudgetState {
            budget: Some(budget_wire::to_wire(&self.in_force, &self.classes)),
            version,
            lease: self.lease.as_ref().map(|lease| v1::Lease {
                id: lease.id.clone(),
                holder: lease.holder.clone(),
                remaining_ms: lease.expires.saturating_since(now).as_millis() as u64,
            }),
            base: Some(budget_wire::to_wire(&self.base, &self.classes)),
        }
    }

    fn renew_in_force(&mut self) -> Result<(), Failure> {
        self.in_force = match &self.lease {
            Some(lease) => budget_wire::apply(&self.base, &lease.change, &mut self.classes)?,
            None => self.base.clone(),
        };
        Ok(())
    }
}

/// Names of classes, numbered as budgets mention them. Class 0 is everyone else, so that clients cannot
/// make the table grow.
#[derive(Clone, Debug, Default)]
pub struct ClassNames(BTreeMap<String, Class>);

impl ClassNames {
    /// The class of a name.
    pub fn get(&self, name: &str) -> Class {
        self.0.get(name).copied().unwrap_or_default()
    }

    /// The class of a name that a budget mentions; `None` when there are too many.
    pub fn intern(&mut self, name: &str) -> Option<Class> {
        if let Some(class) = self.0.get(name) {
            return Some(*class);
        }
        let class = Class(u16::try_from(self.0.len() + 1).ok()?);
        self.0.insert(name.to_owned(), class);
        Some(class)
    }

    /// The name of a class.
    pub fn name(&self, class: Class) -> &str {
        self.0.iter().find(|(_, c)| **c == class).map_or("", |(name, _)| name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn active(n: u32) -> Option<v1::Budget> {
        Some(v1::Budget { max_active_requests: Some(n), ..Default::default() })
    }

    fn ask(change: Option<v1::Budget>, lease_id: &str) -> v1::LeaseBudgetRequest {
        v1::LeaseBudgetRequest { change, ttl_ms: 1_000, lease_id: lease_id.into(), holder: "bench".into() }
    }

    fn at(ms: i64) -> Stamp {
        Stamp::from_ns(ms * 1_000_000)
    }

    fn budgets() -> Budgets {
        Budgets::new(&active(100).unwrap()).unwrap()
    }

    #[test]
    fn an_expired_lease_gives_the_base_back() {
        let mut b = budgets();
        b.lease(ask(active(7), ""), at(0)).unwrap();
        assert_eq!(b.in_force().max_active_requests, 7);
        assert!(!b.expire(at(999)));
        assert!(b.expire(at(1_000)));
        assert_eq!(b.in_force().max_active_requests, 100);
    }

    #[test]
    fn a_refusal_leaves_the_end_of_a_lease_to_the_timer() {
        for refused in [ask(None, "another"), ask(active(0), "")] {
            let mut b = budgets();
            b.lease(ask(active(7), ""), at(0)).unwrap();
            assert!(b.lease(refused, at(1_000)).is_err());
            assert_eq!(b.in_force().max_active_requests, 7, "nobody has told the core of anything else");
            assert_eq!(b.lease_expiry(), Some(at(1_000)));
            assert!(b.expire(at(1_000)));
            assert_eq!(b.in_force().max_active_requests, 100);
        }
    }

    #[test]
    fn a_new_lease_may_follow_at_the_moment_the_last_one_ends() {
        let mut b = budgets();
        let first = b.lease(ask(active(7), ""), at(0)).unwrap();
        assert_ne!(b.lease(ask(active(8), ""), at(1_000)).unwrap(), first);
        assert_eq!(b.in_force().max_active_requests, 8);
    }

    #[test]
    fn a_second_lease_is_refused_naming_the_holder() {
        let mut b = budgets();
        b.lease(ask(active(7), ""), at(0)).unwrap();
        let refused = b.lease(ask(active(8), ""), at(100)).unwrap_err();
        assert!(refused.to_string().contains("bench") && refused.to_string().contains("900 ms"), "{refused}");
        assert_eq!(b.in_force().max_active_requests, 7);
    }

    #[test]
    fn renewing_keeps_the_change_and_moves_the_end() {
        let mut b = budgets();
        let id = b.lease(ask(active(7), ""), at(0)).unwrap();
        assert_eq!(b.lease(ask(None, &id), at(800)).unwrap(), id);
        assert!(!b.expire(at(1_500)));
        assert_eq!(b.in_force().max_active_requests, 7);
        assert!(matches!(b.lease(ask(None, &id), at(5_000)), Err(LeaseError::Gone(_))));
    }

    #[test]
    fn the_base_may_change_under_a_lease() {
        let mut b = budgets();
        let id = b.lease(ask(active(7), ""), at(0)).unwrap();
        b.set(&v1::Budget { max_pending: Some(9), ..active(50).unwrap() }).unwrap();
        assert_eq!((b.in_force().max_active_requests, b.in_force().max_pending), (7, 9));
        b.release(&id).unwrap();
        assert_eq!(b.in_force().max_active_requests, 50);
    }

    #[test]
    fn a_change_out_of_range_changes_nothing() {
        let mut b = budgets();
        let bad = v1::Budget { lookahead: Some(5), ..active(0).unwrap() };
        assert!(b.set(&bad).unwrap_err().to_string().contains("max_active_requests"));
        assert_eq!(b.in_force().lookahead, Budget::default().lookahead);
    }
}
