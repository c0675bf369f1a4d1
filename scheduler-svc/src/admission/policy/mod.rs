//! Policies: who goes next. A policy says which lane a request waits in, how lanes rank, and how a round
//! is filled from them; what refuses a request, and what is charged for that, is the same for all.

pub(super) mod adaptive;
pub(super) mod deadline;
pub(super) mod fair;
pub(super) mod fifo;
pub(super) mod pack;
pub(super) mod priority;

use super::{
    Admission,
    budget::Policy,
    lanes::{Lane, LaneId, LaneName},
    plan::Draft,
    request::Request,
};

/// The lane a request waits in.
pub(super) fn lane_name(policy: Policy, request: &Request) -> LaneName {
    match policy {
        Policy::Fifo | Policy::Pack | Policy::Deadline | Policy::Adaptive => LaneName::Only,
        Policy::Priority => LaneName::Class(request.class),
        Policy::Fair => LaneName::Tenant(request.tenant),
    }
}

/// Fills a round.
pub(super) fn fill(core: &mut Admission, draft: &mut Draft) {
    match core.budget.policy {
        Policy::Pack => pack::fill(core, draft),
        _ => fifo::fill(core, draft),
    }
}

/// Gives a lane its rank, after its head or its tenant's account has changed.
pub(super) fn rank(core: &mut Admission, lane: LaneId) {
    let Lane { name, .. } = core.waiting.lanes.get(lane);
    let head = || {
        let slot = core.waiting.lanes.get(lane).head().expect("lanes that are ranked hold a request");
        core.book.get(slot)
    };
    let rank = match *name {
        LaneName::Only | LaneName::Aside => return,
        LaneName::Class(class) => priority::rank(&core.budget, class, head()),
        LaneName::Tenant(tenant) => core.served.rank(tenant, head().arrival),
    };
    core.waiting.lanes.set_rank(lane, rank);
}
