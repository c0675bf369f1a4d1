//! What the step loop is told.

use firstlight_proto::{clock::Stamp, error::Failure};
use firstlight_sim::planner::{Limits, NewSequence};
use tokio::sync::oneshot;
use tonic::Status;

use super::Outgoing;
use crate::sample::Sampling;

/// Names an attachment inside this process (schedulers choose the id on the wire themselves).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AttachmentKey(pub u64);

/// One message to the step loop.
#[derive(Debug)]
pub enum Command {
    /// A scheduler attached: greet it, then publish to it.
    Attach {
        /// The attachment.
        key: AttachmentKey,
        /// The way to its stream.
        outgoing: Outgoing,
        /// Limits it asked for.
        limits: Option<Limits>,
    },
    /// A batch for the inbox.
    Admit {
        /// The attachment.
        key: AttachmentKey,
        /// Its number within the attachment.
        seq: u64,
        /// Stamp 5: when it was decoded.
        received: Stamp,
        /// Its sequences; those that cannot run are rejected with their reason.
        sequences: Vec<Arrival>,
    },
    /// End these sequences now.
    Cancel {
        /// The attachment.
        key: AttachmentKey,
        /// Their handles; unknown ones have ended already.
        handles: Vec<u32>,
    },
    /// Limits in force from the next forward on.
    SetLimits(Limits),
    /// The stream has ended, or has to end with this status: abort its sequences.
    Detach {
        /// The attachment.
        key: AttachmentKey,
        /// What the stream ends with; `None` when it ended well, or is gone.
        status: Option<Status>,
    },
    /// Finish what has begun, hand back what has not, then end.
    Drain,
    /// End now.
    Stop,
    /// Tell your state.
    Inspect(oneshot::Sender<Snapshot>),
}

/// A sequence on its way into the engine: checked, or the handle and the reason why it cannot run.
pub type Arrival = Result<(Admission, NewSequence), (u32, Failure)>;

/// What the loop keeps of a checked sequence; the planner gets the rest.
#[derive(Debug, Clone)]
pub struct Admission {
    /// Names it within the attachment.
    pub handle: u32,
    /// Names it everywhere.
    pub request_id: String,
    /// Groups the requests of one run.
    pub run_label: String,
    /// How many of its tokens are output of an earlier attempt.
    pub resumed_tokens: u32,
    /// How its tokens are chosen.
    pub sampling: Sampling,
}

/// The loop's state between two forwards.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    /// KV blocks in the pool.
    pub total_blocks: usize,
    /// Unused + evictable.
    pub free_blocks: usize,
    /// Known to the prefix cache.
    pub cached_blocks: usize,
    /// Sequences that have begun and not ended.
    pub active: usize,
    /// Sequences in the inbox.
    pub inbox: usize,
    /// Streams attached.
    pub attachments: usize,
    /// What is wrong with the books of the pool; `None` when nothing is.
    pub integrity: Option<String>,
}
