//! Requests that are pending or active and that someone waits for. A request that was taken back is no
//! longer here, even while its engine still holds blocks for it.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

use firstlight_proto::clock::Stamp;
use rustc_hash::FxHashMap;
use slab::Slab;
use tokio::sync::{mpsc, oneshot};

use super::{End, Ending, Token};
use crate::{
    admission::{EngineId, Key},
    record::Record,
    request::Ask,
};

/// One request in flight.
pub struct Live {
    /// Its name in the core.
    pub key: Key,
    /// What is asked for.
    pub ask: Ask,
    /// What is stamped of it.
    pub record: Record,
    /// Tokens received so far.
    pub generated: Vec<u32>,
    /// To its client.
    pub tokens: mpsc::Sender<Token>,
    /// Where it is active: the engine and its handle there.
    pub seat: Option<(EngineId, u32)>,
    ending: oneshot::Sender<Ending>,
}

impl Live {
    /// A request that is queued; its client holds the other ends.
    pub fn new(
        key: Key,
        ask: Ask,
        record: Record,
        tokens: mpsc::Sender<Token>,
        ending: oneshot::Sender<Ending>,
    ) -> Self {
        Self { key, ask, record, generated: Vec::new(), tokens, seat: None, ending }
    }

    /// Ends the stream. Gives the ending back when the client is gone.
    pub fn end(mut self, end: End, now: Stamp) -> Result<(), Box<Ending>> {
        self.record.finished = Some(now);
        self.ending.send(Ending { end, record: self.record }).map_err(Box::new)
    }
}

/// Where a request lies, remembered by whoever refers to it often.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    index: usize,
    /// Its name in the core; tells whether the place was taken over by another.
    pub key: Key,
}

/// All of them.
#[derive(Default)]
pub struct InFlight {
    slab: Slab<Live>,
    by_key: FxHashMap<Key, usize>,
    by_id: HashMap<Arc<str>, Key>,
    deadlines: BTreeSet<(Stamp, Key)>,
}

impl InFlight {
    /// The key of the request of this id.
    pub fn key_of(&self, id: &str) -> Option<Key> {
        self.by_id.get(id).copied()
    }

    /// Takes in a request; its id is not in flight.
    pub fn insert(&mut self, live: Live) {
        let key = live.key;
        self.by_id.insert(live.ask.id.clone(), key);
        if let Some(deadline) = live.ask.deadline {
            self.deadlines.insert((deadline, key));
        }
        self.by_key.insert(key, self.slab.insert(live));
    }

    /// Where a request lies.
    pub fn place(&self, key: Key) -> Option<Place> {
        self.by_key.get(&key).map(|index| Place { index: *index, key })
    }

    /// The request at a place, unless it has left.
    pub fn at(&mut self, place: Place) -> Option<&mut Live> {
        self.slab.get_mut(place.index).filter(|live| live.key == place.key)
    }

    /// The request of that key.
    pub fn get(&mut self, key: Key) -> Option<&mut Live> {
        let place = self.place(key)?;
        self.at(place)
    }

    /// Takes a request out.
    pub fn remove(&mut self, key: Key) -> Option<Live> {
        let live = self.slab.remove(self.by_key.remove(&key)?);
        self.by_id.remove(&live.ask.id);
        if let Some(deadline) = live.ask.deadline {
            self.deadlines.remove(&(deadline, key));
        }
        Some(live)
    }

    /// The earliest deadline.
    pub fn next_deadline(&self) -> Option<Stamp> {
        self.deadlines.first().map(|(deadline, _)| *deadline)
    }

    /// A request whose deadline has passed.
    pub fn next_expired(&self, now: Stamp) -> Option<Key> {
        self.deadlines.first().filter(|(deadline, _)| *deadline <= now).map(|(_, key)| *key)
    }

    /// The keys of all requests.
    pub fn keys(&self) -> Vec<Key> {
        self.by_key.keys().copied().collect()
    }
}
