//! Requests set aside: no attached engine could hold them, but one that was lost could, and may come back. They wait in
//! nobody's way, charged `no_engine`, until such an engine is attached or [`RETURN_GRACE`](super::RETURN_GRACE) has
//! passed since the loss.

use std::cmp::Reverse;

use firstlight_proto::clock::Stamp;

use super::{Admission, book::Slot, cause::ByCause, door::Refused, policy, request::Request, waiting::At};

impl Admission {
    /// Takes a pending request off its lane, to wait for an engine `until` then.
    pub(super) fn set_aside(&mut self, slot: Slot, until: Stamp, now: Stamp) {
        let waited = self.take_off_lane(slot, now);
        self.waiting.set_aside(&mut self.book, slot, &waited, now);
        self.wait_until(until);
    }

    /// Queues those of the requests set aside that `which` picks anew, at the front of their lanes, in order of arrival.
    pub(super) fn call_back(&mut self, now: Stamp, which: impl Fn(&Self, &Request) -> bool) {
        let called = |slot: &Slot| which(self, &self.book.get(*slot).request);
        let mut back: Vec<Slot> = self.waiting.lanes.aside(&self.book).filter(called).collect();
        back.sort_unstable_by_key(|slot| Reverse(self.book.get(*slot).arrival));
        for slot in back {
            let waited = self.take_off_lane(slot, now);
            self.waiting.end_of_aside(&self.book, slot, now);
            self.enqueue(now, slot, At::Front, &waited);
        }
        self.waiting.mark_heads(&mut self.book, now);
    }

    /// Turns those away for whom no engine has come back in time.
    pub(super) fn stop_waiting_aside(&mut self, now: Stamp) {
        if self.aside_until.is_none_or(|until| now < until) {
            return;
        }
        self.aside_until = None;
        for slot in self.waiting.lanes.aside(&self.book).collect::<Vec<_>>() {
            let awaited = self.departed.awaited_until(&self.book.get(slot).request, &self.budget);
            match awaited.filter(|until| now < *until) {
                Some(until) => self.wait_until(until),
                None => self.turn_away_for(slot, Refused::EnginesGone, now),
            }
        }
    }

    /// Someone set aside waits until then at the latest.
    fn wait_until(&mut self, until: Stamp) {
        self.aside_until = Some(self.aside_until.map_or(until, |earliest| earliest.min(until)));
    }

    /// Ends one stretch of a request's waiting, in one lane, so that the next may begin in another; the wait by cause to
    /// bring there.
    fn take_off_lane(&mut self, slot: Slot, now: Stamp) -> ByCause {
        self.record(slot, now, None);
        let (waited, lane) = self.waiting.leave(&mut self.book, slot, now);
        self.book.get_mut(slot).behind = waited.behind;
        if let Some(lane) = lane {
            policy::rank(self, lane);
        }
        waited.by_cause
    }
}
