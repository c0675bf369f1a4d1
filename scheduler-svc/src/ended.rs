//! A request that ended. Its span and its trace are made of it by whoever sends them.

use firstlight_proto::{inject::loss::Loss, serve::spans::Told, v1};

use crate::record::Record;

/// All that was stamped of a request, and how it ended.
#[derive(Debug)]
pub struct Ended {
    /// What was stamped.
    pub record: Record,
    /// A finish reason or the kind of a failure, as spans and metrics name it.
    pub outcome: &'static str,
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

    fn span(&self, relay_beside: Option<&v1::ClockDomain>) -> v1::Span {
        self.record.span(self.event(), self.outcome, relay_beside)
    }
}
