//! One scheduler's stream as the loop sees it.

use std::collections::{HashMap, VecDeque};

use firstlight_proto::{
    clock::Stamp,
    v1::{self, FirstToken, RowEnd, Step, engine_message::Message},
};
use firstlight_sim::planner::{BatchId, End, SeqId};

use super::Outgoing;

/// An attached stream, its sequences, and the rows of its next `Step`.
#[derive(Debug)]
pub(super) struct Attachment {
    pub(super) outgoing: Outgoing,
    /// A message was not taken: nothing more is sent, and the loop detaches it as soon as it holds no plan.
    pub(super) lost: bool,
    pub(super) handles: HashMap<u32, SeqId>,
    /// Batches of which `Begun` was not sent, in order.
    batches: VecDeque<Waiting>,
    /// Last batch that has begun.
    last_seq: u64,
    /// Since when its buffer has been short of room.
    pub(super) stalled_since: Option<Stamp>,
    rows: Columns,
}

#[derive(Debug)]
struct Waiting {
    id: BatchId,
    seq: u64,
    /// Sequences that may still begin.
    sequences: usize,
    begun: Option<Stamp>,
}

#[derive(Debug, Default)]
struct Columns {
    handles: Vec<u32>,
    token_ids: Vec<u32>,
    ends: Vec<i32>,
    first_tokens: Vec<FirstToken>,
}

impl Attachment {
    pub(super) fn new(outgoing: Outgoing) -> Self {
        Self {
            outgoing,
            lost: false,
            handles: HashMap::new(),
            batches: VecDeque::new(),
            last_seq: 0,
            stalled_since: None,
            rows: Columns::default(),
        }
    }

    /// A batch arrived, with so many sequences that can begin.
    pub(super) fn batch_arrived(&mut self, id: BatchId, seq: u64, sequences: usize) {
        self.batches.push_back(Waiting { id, seq, sequences, begun: None });
    }

    /// The first prompt row of batch `id`, if it is one of ours, runs at `at`.
    pub(super) fn batch_begun(&mut self, id: BatchId, at: Stamp) {
        if let Some(waiting) = self.batches.iter_mut().find(|waiting| waiting.id == id) {
            waiting.begun = Some(at);
        }
    }

    /// A sequence of batch `id` is gone before it began.
    pub(super) fn lost_from_batch(&mut self, id: BatchId) {
        if let Some(waiting) = self.batches.iter_mut().find(|waiting| waiting.id == id) {
            waiting.sequences = waiting.sequences.saturating_sub(1);
        }
    }

    /// The `Begun` that are due: in order of seq, of batches that began, or of which nothing is left that could.
    pub(super) fn take_begun(&mut self, now: Stamp) -> Vec<v1::Begun> {
        let mut due = Vec::new();
        while let Some(waiting) = self.batches.front() {
            let at = waiting.begun.or_else(|| (waiting.sequences == 0).then_some(now));
            let Some(at) = at else { break };
            self.last_seq = waiting.seq;
            due.push(v1::Begun { seq: waiting.seq, at_ns: at.ns() });
            self.batches.pop_front();
        }
        due
    }

    /// Adds a row to the next `Step`.
    pub(super) fn row(&mut self, handle: u32, token: Option<u32>, end: Option<End>) {
        self.rows.handles.push(handle);
        self.rows.token_ids.push(token.unwrap_or_default());
        self.rows.ends.push(end.map_or(RowEnd::None, row_end).into());
    }

    /// Adds a first token's timeline to the next `Step`.
    pub(super) fn first_token(&mut self, handle: u32, timeline: v1::EngineTimeline) {
        self.rows.first_tokens.push(FirstToken { handle, timeline: Some(timeline) });
    }

    /// Hands a message to the stream.
    pub(super) fn send(&mut self, made: Stamp, message: Message) {
        if !self.lost {
            self.lost = self.outgoing.send(made, message).is_err();
        }
    }

    /// Sends the next `Step`: `report` says what the forward did, the rows are this attachment's own. Without rows
    /// a congested attachment is spared the message: the next one carries the same counts, newer.
    pub(super) fn publish(&mut self, made: Stamp, report: &Step) {
        if self.rows.handles.is_empty() && self.outgoing.is_congested() {
            return;
        }
        let rows = std::mem::take(&mut self.rows);
        let step = Step {
            handles: rows.handles,
            token_ids: rows.token_ids,
            ends: rows.ends,
            first_tokens: rows.first_tokens,
            last_seq: self.last_seq,
            ..report.clone()
        };
        self.send(made, Message::Step(step));
    }
}

fn row_end(end: End) -> RowEnd {
    match end {
        End::Length => RowEnd::Length,
        End::Eos => RowEnd::Eos,
        End::StopToken => RowEnd::StopToken,
        End::Preempted => RowEnd::Preempted,
        End::Cancelled => RowEnd::Cancelled,
        End::Failed => RowEnd::Failed,
    }
}
