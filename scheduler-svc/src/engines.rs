//! Links to the engines: one task per address that dials, attaches, probes the clock and dials again.
//!
//! - [`link`]: one address, attachment after attachment
//! - [`attachment`]: one stream, from `Open` to its end
//! - [`backoff`]: how long to wait before dialling again
//! - [`roster`]: which addresses there are, fixed or by DNS name
//!
//! Links decide nothing: what an engine says goes to the one task that owns the admission core
//! ([`dispatch`](crate::dispatch)) as an [`Event`].

pub mod attachment;
pub mod backoff;
pub mod link;
pub mod roster;

use std::sync::Arc;

use firstlight_proto::{
    clock::{Clock, Stamp},
    inject::Injections,
    offset::View,
    serve::tls::Dialer,
    v1,
};
use tokio::sync::{mpsc, watch};

use crate::admission::EngineId;

pub use roster::Roster;

/// The engine's clock seen from here, when known.
pub type ClockView = Option<View>;

/// What a link tells the owner of the core. In order within an attachment; `Attached` comes first.
#[derive(Debug)]
pub enum Event {
    /// An engine is attached.
    Attached(Box<Attached>),
    /// The engine said something about its sequences.
    Said {
        /// Which attachment.
        engine: EngineId,
        /// When it was decoded.
        at: Stamp,
        /// What.
        message: Box<v1::engine_message::Message>,
        /// The engine's clock by then; only beside a step with first tokens.
        clock: ClockView,
    },
    /// The stream ended; the engine aborts the attachment's sequences.
    Lost {
        /// Which attachment.
        engine: EngineId,
        /// Why, for the log.
        reason: String,
    },
}

/// A new attachment.
#[derive(Debug)]
pub struct Attached {
    /// Its id, new for each stream.
    pub engine: EngineId,
    /// Address that was dialled, host:port.
    pub address: Arc<str>,
    /// What the engine said of itself.
    pub hello: v1::Hello,
    /// Messages to the engine. Bounded by what the core admits.
    pub down: mpsc::UnboundedSender<v1::scheduler_message::Message>,
    /// The engine's clock, kept up to date by probes.
    pub clock: watch::Receiver<ClockView>,
    /// An attachment of this address ended before.
    pub again: bool,
}

/// What every link needs.
#[derive(Clone)]
pub struct Context {
    /// Clock of all stamps.
    pub clock: Clock,
    /// Where that clock is valid.
    pub domain: Arc<v1::ClockDomain>,
    /// The vocabulary of our tokenizer, if there is one.
    pub vocabulary: Option<Vocabulary>,
    /// How engines are dialled; `None`: in the clear.
    pub tls: Option<Dialer>,
    /// Delays to inject (`dispatch`, `return`).
    pub injections: Arc<Injections>,
    /// To the owner of the core.
    pub events: mpsc::Sender<Event>,
}

/// What identifies a vocabulary.
#[derive(Clone, Debug)]
pub struct Vocabulary {
    /// See [`firstlight_proto::vocabulary::fingerprint`].
    pub fingerprint: Arc<str>,
    /// Number of token ids.
    pub size: usize,
}

impl Vocabulary {
    /// Whether an engine means the same tokens. An engine without a fingerprint may have more ids (padded
    /// embeddings), never fewer.
    ///
    /// # Errors
    /// Names both sides.
    pub fn check(&self, hello: &v1::Hello) -> Result<(), String> {
        if !hello.tokenizer_hash.is_empty() && *hello.tokenizer_hash != *self.fingerprint {
            return Err(format!(
                "engine {} has vocabulary {}, this scheduler's tokenizer has {}; give both the same model",
                hello.name, hello.tokenizer_hash, self.fingerprint
            ));
        }
        if (hello.vocab_size as usize) < self.size {
            return Err(format!(
                "engine {} knows {} token ids, this scheduler's tokenizer makes {}; give both the same model",
                hello.name, hello.vocab_size, self.size
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hello(hash: &str, size: u32) -> v1::Hello {
        v1::Hello { tokenizer_hash: hash.into(), vocab_size: size, ..Default::default() }
    }

    #[test]
    fn an_engine_with_another_vocabulary_is_refused() {
        let ours = Vocabulary { fingerprint: "a".into(), size: 10 };
        assert!(ours.check(&hello("a", 10)).is_ok());
        assert!(ours.check(&hello("b", 10)).unwrap_err().contains("same model"));
    }

    #[test]
    fn without_a_fingerprint_the_size_must_cover_our_ids() {
        let ours = Vocabulary { fingerprint: "a".into(), size: 10 };
        assert!(ours.check(&hello("", 16)).is_ok());
        assert!(ours.check(&hello("", 9)).is_err());
    }
}
