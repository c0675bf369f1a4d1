//! A request that ended. Its span and its trace are made of it by whoever sends them.

use std::sync::Arc;

use firstlight_proto::{inject::loss::Loss, serve::spans::Told, v1};

use crate::record::Record;

/// All that was stamped of a request, and how it ended.
#[derive(Debug)]
pub struct Ended {
    /// What was stamped.
    pub record: Record,
    /// A finish reason or the kind of a failure, as spans and metrics name it.
    pub outcome: &'static str,
    /// Where this service's stamps are valid.
    pub ours: Arc<v1::ClockDomain>,
}

impl Told for Ended {
    fn request_id(&self) -> &str {
        &self.record.id
    }

    fn run_label(&self) -> &str {
        &self.record.run_label
    }

    fn event(&self) -> v1::SpanEvent {
        v1::SpanEvent::Finished
    }

    fn loss(&self) -> Loss {
        Loss::SchedulerSpans
    }

    fn span(&self, relays: bool) -> v1::Span {
        self.record.span(self.event(), self.outcome, relays.then_some(&*self.ours))
    }
}
