//! `priority`: classes by weight, with aging. A class of weight w is served as if its requests had come
//! w × `aging` earlier. So a request is overtaken only by arrivals within (greatest weight − its weight) ×
//! `aging` after it, whatever the load: the bound on starvation. Without aging, weights are strict.

use super::super::{book::Entry, budget::Budget, lanes::Rank, request::Class};

/// Rank of a class's lane, by its head.
pub(in super::super) fn rank(budget: &Budget, class: Class, head: &Entry) -> Rank {
    let weight = i64::from(budget.weight(class));
    let aging = budget.aging.as_nanos() as i64;
    let served_as_if_come = if aging == 0 { -weight } else { head.arrived.ns() - weight * aging };
    (served_as_if_come, head.arrival, 0)
}
