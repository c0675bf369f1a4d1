//! `priority`: classes by weight, with aging. A class of weight w is served as if its requests had come
//! w × `aging` earlier. So a request is overtaken only by arrivals within (greatest weight − its weight) ×
//! `aging` after it, whatever the load: the bound on starvation. Without aging, weights are strict.

use super::super::{
    Admission,
    lanes::{LaneId, Rank},
    request::Class,
};

/// Rank of a class's lane.
pub(in super::super) fn rank(core: &Admission, lane: LaneId, class: Class) -> Rank {
    let head = core.waiting.lanes.get(lane).head().expect("lanes that are ranked hold a request");
    let entry = core.book.get(head);
    let weight = i64::from(core.budget.weight(class));
    let aging = core.budget.aging.as_nanos() as i64;
    let served_as_if_come = if aging == 0 { -weight } else { entry.arrived.ns() - weight * aging };
    (served_as_if_come, entry.arrival)
}
