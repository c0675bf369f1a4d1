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
    lanes::{LaneId, LaneName},
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
    let rank = match core.waiting.lanes.get(lane).name {
        LaneName::Only => return,
        LaneName::Class(class) => priority::rank(core, lane, class),
        LaneName::Tenant(tenant) => core.served.rank(tenant),
    };
    core.waiting.lanes.set_rank(lane, rank);
}
