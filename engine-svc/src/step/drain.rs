//! Draining: what has begun goes on to its end, what has not goes back to its scheduler.

use firstlight_proto::v1::{self, engine_message::Message};
use firstlight_sim::planner::{End, SeqId};

use super::{
    AttachmentKey,
    run::{Phase, StepLoop},
};

impl StepLoop {
    /// Begins nothing from now on, and ends when all that has begun has ended.
    pub(super) fn drain(&mut self) {
        self.phase = Phase::Draining;
        // Told first, so that schedulers send elsewhere what they are handed back.
        for key in self.attachments.keys().copied().collect::<Vec<_>>() {
            self.tell_draining(key);
        }
        self.hand_back();
    }

    pub(super) fn tell_draining(&mut self, key: AttachmentKey) {
        self.send(key, Message::Draining(v1::Draining {}));
    }

    /// Ends all that has not begun; the schedulers queue it again.
    pub(super) fn hand_back(&mut self) {
        let waiting = self.running.iter().filter(|(_, running)| !running.has_begun());
        let waiting: Vec<SeqId> = waiting.map(|(index, _)| SeqId(index as u32)).collect();
        if waiting.is_empty() {
            return;
        }
        for id in waiting {
            self.planner.cancel(id);
            self.finish(id, None, End::Preempted);
        }
        self.publish(&v1::Step::default());
    }
}
