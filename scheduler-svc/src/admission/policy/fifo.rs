//! `fifo`: heads in turn, until one is refused. With several lanes, the head of the lane that ranks first;
//! the round ends at the first refusal, so that no one overtakes who is only smaller.

use super::super::{Admission, plan::Draft};

/// Fills a round from the heads of lanes, in the order lanes rank.
pub(in super::super) fn fill(core: &mut Admission, draft: &mut Draft) {
    while let Some(head) = core.waiting.lanes.next() {
        if core.clear_away_if_hopeless(head, draft.now) {
            continue;
        }
        let need = core.need(head, &draft.geometry);
        if let Some(cause) = draft.room.refusal(need) {
            draft.stopped_by = Some(cause);
            return;
        }
        core.admit(draft, head, need);
    }
}
