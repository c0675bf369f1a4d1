//! Why a recent request waited, in the names that people know: the core knows requests by key only.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
};

use firstlight_proto::v1;
use rustc_hash::FxHashMap;

use super::{Dispatch, End};
use crate::{
    admission::{Explanation, Key, RequestState},
    telemetry::outcome,
};

/// Requests that are remembered after their end.
const KEPT: usize = 8_192;

/// Ids of requests that ended lately.
#[derive(Default)]
pub struct Recent {
    order: VecDeque<Key>,
    by_key: FxHashMap<Key, Arc<str>>,
    /// The last request of each id, and how it ended.
    by_id: HashMap<Arc<str>, (Key, &'static str)>,
}

impl Recent {
    /// Remembers a request that ends.
    pub fn remember(&mut self, key: Key, id: &Arc<str>, end: &End) {
        let how = match end {
            End::Finished(reason) => outcome(*reason),
            End::Failed(failure, _) => failure.kind().label(),
        };
        if self.order.len() == KEPT
            && let Some(oldest) = self.order.pop_front()
            && let Some(id) = self.by_key.remove(&oldest)
            && self.by_id.get(&id).is_some_and(|(key, _)| *key == oldest)
        {
            self.by_id.remove(&id);
        }
        self.order.push_back(key);
        self.by_key.insert(key, id.clone());
        self.by_id.insert(id.clone(), (key, how));
    }
}

impl Dispatch {
    /// Why a request waited; `None` when it is neither in flight nor remembered.
    pub fn explain(&mut self, id: &str) -> Option<v1::ExplainResponse> {
        let (key, ended) = match self.inflight.key_of(id) {
            Some(key) => (key, None),
            None => self.recent.by_id.get(id).map(|(key, how)| (*key, Some(*how)))?,
        };
        let explanation = self.core.explain(self.now(), key)?;
        let state = ended.unwrap_or(match explanation.state {
            RequestState::Pending => "pending",
            RequestState::Active | RequestState::Finished | RequestState::Withdrawn => "active",
        });
        Some(v1::ExplainResponse {
            request_id: id.to_owned(),
            state: state.to_owned(),
            queue_wait_ns: explanation.queue_wait(),
            behind_ns: explanation.behind,
            periods: self.periods(explanation),
        })
    }

    fn periods(&mut self, explanation: Explanation) -> Vec<v1::WaitPeriod> {
        let periods = explanation.periods.into_iter().map(|period| v1::WaitPeriod {
            cause: v1::Cause::from(period.cause).into(),
            from_ns: period.from.ns(),
            to_ns: period.to.ns(),
            limit: period.limit,
            holders: period
                .holders
                .into_iter()
                .map(|holder| v1::Holder { request_id: self.name_of(holder.key), amount: holder.amount })
                .collect(),
        });
        periods.collect()
    }

    fn name_of(&mut self, key: Key) -> String {
        match self.inflight.get(key) {
            Some(live) => live.ask.id.to_string(),
            // Ended too long ago to be remembered by id.
            None => self.recent.by_key.get(&key).map_or_else(|| key.to_string(), |id| id.to_string()),
        }
    }
}
