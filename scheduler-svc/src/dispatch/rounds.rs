//! What the core plans, sent to engines.

use std::sync::Arc;

use firstlight_proto::{clock::Stamp, v1, v1::scheduler_message::Message as Down};

use super::{Dispatch, inflight::Live};
use crate::{admission::Round, record::Admitted};

impl Dispatch {
    /// Lets the core plan until it has no more rounds, sends them, and tells engines changed limits.
    pub(super) fn plan(&mut self, now: Stamp) {
        if self.hold_until.is_some() {
            return;
        }
        while let Some(round) = self.core.plan(now) {
            self.send(&round);
        }
        for turned_away in self.core.turn_away(now) {
            self.turn_away(turned_away, now);
        }
        self.tell_limits();
    }

    /// Tells the engines their part of the budget when it has changed.
    pub(super) fn tell_limits(&mut self) {
        let limits = self.core.engine_limits();
        self.engines.values_mut().for_each(|attached| attached.tell_limits(&limits));
    }

    fn send(&mut self, round: &Round) {
        let Some(attached) = self.engines.get_mut(&round.engine) else {
            tracing::error!(engine = round.engine.0, "the core planned for an engine that is not attached");
            return;
        };
        let policy = self.core.budget().0.policy;
        let mut sequences = Vec::with_capacity(round.batch.len());
        for admitted in &round.batch {
            let Some(place) = self.inflight.place(admitted.key) else { continue };
            let Some(live) = self.inflight.at(place) else { continue };
            let handle = attached.seats.take(place);
            live.seat = Some((round.engine, handle));
            let admission = Admitted {
                at: round.at,
                round: round.seq,
                round_size: round.batch.len() as u32,
                engine: Arc::clone(&attached.name),
                policy,
                budget_version: round.budget_version,
            };
            live.record.admit(admission, admitted.waited);
            sequences.push(sequence(handle, live));
        }
        self.telemetry.metrics.rounds.increment(1);
        self.telemetry.metrics.round_requests.record(round.batch.len() as f64);
        attached.say(Down::Admit(v1::Admit { seq: round.seq, sequences }));
    }
}

/// The request as the engine sees it: prompt, then what was generated before it was lost or preempted.
fn sequence(handle: u32, live: &Live) -> v1::Sequence {
    let ask = &live.ask;
    let generated = live.generated.len() as u32;
    v1::Sequence {
        handle,
        request_id: ask.id.to_string(),
        run_label: ask.run_label.to_string(),
        token_ids: [&ask.prompt[..], &live.generated[..]].concat(),
        resumed_tokens: generated,
        max_new_tokens: ask.max_new - generated,
        sampling: Some(ask.sampling),
        stop_token_ids: ask.stop_token_ids.clone(),
        ignore_eos: ask.ignore_eos,
        no_prefix_cache: ask.no_prefix_cache,
    }
}
