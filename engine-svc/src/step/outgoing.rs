//! The bounded way from the step loop to one attachment's stream.

use std::sync::{Arc, OnceLock};

use firstlight_proto::{clock::Stamp, v1::engine_message::Message};
use tokio::sync::mpsc;
use tonic::Status;

/// Messages that may wait before tokens stop flowing to a scheduler that reads slowly: enough for the hiccups of a
/// network, and little enough that latency does not become backlog.
pub const WINDOW: usize = 64;

/// Messages that may wait at all: beyond the window only what must be told (`Begun`, `Rejected`, ends).
pub const CAPACITY: usize = 16_384;

/// The loop's end.
#[derive(Debug)]
pub struct Outgoing {
    messages: mpsc::Sender<(Stamp, Message)>,
    status: Arc<OnceLock<Status>>,
}

/// The stream's end.
#[derive(Debug)]
pub struct Incoming {
    /// Messages, with the stamp at which each was made.
    pub messages: mpsc::Receiver<(Stamp, Message)>,
    /// What to end with once they are through; unset when the attachment ended well.
    pub status: Arc<OnceLock<Status>>,
}

/// The stream is gone, or its buffer is full.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NotTaken;

/// Both ends.
pub fn channel() -> (Outgoing, Incoming) {
    let (sender, messages) = mpsc::channel(CAPACITY);
    let status = Arc::new(OnceLock::new());
    (Outgoing { messages: sender, status: status.clone() }, Incoming { messages, status })
}

impl Outgoing {
    /// Hands a message over without waiting.
    ///
    /// # Errors
    /// [`NotTaken`]; the attachment cannot go on then.
    pub fn send(&self, made: Stamp, message: Message) -> Result<(), NotTaken> {
        self.messages.try_send((made, message)).map_err(|_| NotTaken)
    }

    /// Whether its scheduler reads more slowly than we produce: stop producing for it.
    pub fn is_congested(&self) -> bool {
        CAPACITY - self.messages.capacity() >= WINDOW
    }

    /// Whether the stream is gone.
    pub fn is_closed(&self) -> bool {
        self.messages.is_closed()
    }

    /// Ends the stream with `status`, after what was sent before.
    pub fn end(self, status: Status) {
        // An earlier status is the more telling one.
        let _ = self.status.set(status);
    }
}

#[cfg(test)]
mod tests {
    use firstlight_proto::v1;

    use super::*;

    fn message() -> Message {
        Message::Begun(v1::Begun::default())
    }

    #[test]
    fn a_slow_reader_is_noticed_before_the_buffer_is_full() {
        let (outgoing, _incoming) = channel();
        let mut sent = 0;
        while !outgoing.is_congested() {
            outgoing.send(Stamp::from_ns(1), message()).unwrap();
            sent += 1;
        }
        assert_eq!(sent, WINDOW);
        assert_eq!(outgoing.send(Stamp::from_ns(1), message()), Ok(()), "what must be told still is");
    }

    #[test]
    fn a_full_buffer_takes_nothing_more() {
        let (outgoing, _incoming) = channel();
        for _ in 0..CAPACITY {
            outgoing.send(Stamp::from_ns(1), message()).unwrap();
        }
        assert_eq!(outgoing.send(Stamp::from_ns(1), message()), Err(NotTaken));
    }
}
