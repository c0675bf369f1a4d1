//! The thread that replays the live arrivals under the shadow's budget. One of its own: a tick takes milliseconds,
//! which no task beside it shall wait for.

use std::{
    io,
    thread::{self, JoinHandle},
    time::Duration,
};

use firstlight_proto::clock::{Clock, Stamp};
use firstlight_sim::cost::CostModel;
use rustc_hash::FxHashMap;
use tokio::sync::mpsc;

use super::{Feed, News, ShadowPolicy, costs::Costs};
use crate::{
    admission::{EngineId, Key},
    metrics::{ShadowMetrics, in_seconds},
    replay::{Arrival, EngineShape, Observer, Prompt, Story, World},
};

/// How often news are taken and virtual time goes on. A tick finds what it works on gone from the caches, which costs
/// more than the replay when ticks are short.
const TICK: Duration = Duration::from_secs(1);
/// How far virtual time stays behind, so that news on their way are not too late for it.
const BEHIND: Duration = Duration::from_millis(50);
/// Requests remembered that have ended here, or whose live end was not heard of.
const KEPT: usize = 65_536;

/// A shadow, ready to run.
#[derive(Debug)]
pub struct Shadow {
    policy: ShadowPolicy,
    clock: Clock,
    news: mpsc::Receiver<News>,
    /// Up to when all is known.
    now: Stamp,
    costs: Costs,
    /// Live attachments.
    engines: FxHashMap<EngineId, Attached>,
    /// There once the costs are known.
    world: Option<World<CostModel, Told>>,
    /// Live requests by their name in the live core, with their name here.
    requests: FxHashMap<Key, Key>,
    metrics: ShadowMetrics,
}

#[derive(Debug)]
struct Attached {
    shape: EngineShape,
    draining: bool,
    here: Option<EngineId>,
}

/// Tells the predicted TTFT of each request as it comes.
#[derive(Debug)]
struct Told {
    metrics: ShadowMetrics,
    /// Stamp 2 of requests without a token.
    received: FxHashMap<Key, Stamp>,
}

impl Observer for Told {
    fn token(&mut self, story: &Story, gap: Option<i64>) {
        if gap.is_some() {
            return;
        }
        if let (Some(received), Some(first)) = (self.received.remove(&story.key), story.first_token) {
            self.metrics.ttft.record(in_seconds(first.since(received)));
        }
    }

    fn ended(&mut self, story: &Story) {
        self.received.remove(&story.key);
    }
}

impl Shadow {
    /// A shadow and what feeds it with news, whose stamps are of `clock`.
    pub fn fed(policy: ShadowPolicy, clock: Clock) -> (Feed, Self) {
        let metrics = ShadowMetrics::new(&policy.name);
        let (feed, news) = Feed::new(metrics.dropped.clone());
        let shadow = Self {
            metrics,
            policy,
            clock,
            news,
            now: Stamp::from_ns(0),
            costs: Costs::default(),
            engines: FxHashMap::default(),
            world: None,
            requests: FxHashMap::default(),
        };
        (feed, shadow)
    }

    /// Replays until the feed ends.
    ///
    /// # Errors
    /// When there can be no more threads.
    pub fn spawn(mut self) -> io::Result<JoinHandle<()>> {
        thread::Builder::new().name("shadow".into()).spawn(move || {
            while !(self.news.is_closed() && self.news.is_empty()) {
                thread::sleep(TICK);
                while let Ok(news) = self.news.try_recv() {
                    self.take(news);
                }
                self.run_until(self.clock.now() - BEHIND);
            }
        })
    }

    fn take(&mut self, news: News) {
        match news {
            News::Attached { at, engine, shape } => {
                self.run_until(at);
                let here = self.world.as_mut().map(|world| world.attach(shape));
                self.engines.insert(engine, Attached { shape, draining: false, here });
            }
            News::Draining { at, engine } => {
                self.run_until(at);
                let Some(attached) = self.engines.get_mut(&engine) else { return };
                attached.draining = true;
                if let (Some(world), Some(here)) = (&mut self.world, attached.here) {
                    world.drain(here);
                }
            }
            News::Lost { at, engine } => {
                self.run_until(at);
                self.costs.forget(engine);
                let here = self.engines.remove(&engine).and_then(|attached| attached.here);
                if let (Some(world), Some(here)) = (&mut self.world, here) {
                    world.lose(here);
                }
            }
            News::Queued { at, received, key, request, prompt } => {
                self.run_until(at);
                let Some(world) = &mut self.world else { return };
                let mut arrival = Arrival::new(request);
                if let Some(ids) = prompt {
                    arrival.prompt = Prompt::Ids(ids);
                }
                if let Ok(here) = world.offer(arrival) {
                    world.observer_mut().received.insert(here, received);
                    self.remember(key, here);
                }
            }
            News::Ended { at, key, tokens, finished } => {
                self.run_until(at);
                if let (Some(world), Some(here)) = (&mut self.world, self.requests.remove(&key)) {
                    if finished { world.end_after(here, tokens) } else { world.withdraw(here) }
                }
            }
            News::FirstToken { dispatch, back } => self.costs.hand_overs(dispatch, back),
            News::Forward { engine, ran } => {
                if self.costs.forward(engine, &ran) {
                    self.use_costs();
                }
            }
        }
    }

    /// Puts the costs as they are now in force; the first ones begin the replay.
    fn use_costs(&mut self) {
        let Some(cost) = self.costs.cost().cloned() else { return };
        self.metrics.cost_error.set(self.costs.relative_error());
        let wire = self.costs.wire();
        if let Some(world) = &mut self.world {
            world.set_cost(cost);
            world.set_wire(wire);
            return;
        }
        let told = Told { metrics: self.metrics.clone(), received: FxHashMap::default() };
        match World::new(self.policy.budget.clone(), wire, cost, told, self.now) {
            Ok(mut world) => {
                for attached in self.engines.values_mut().filter(|attached| !attached.draining) {
                    attached.here = Some(world.attach(attached.shape));
                }
                tracing::info!(shadow = self.policy.name, "shadow begins: the costs of forwards are known");
                self.world = Some(world);
            }
            // The budget was checked when it was read.
            Err(error) => tracing::error!(%error, shadow = self.policy.name, "shadow budget refused"),
        }
    }

    fn run_until(&mut self, at: Stamp) {
        self.now = self.now.max(at);
        if let Some(world) = &mut self.world {
            world.run_until(at);
        }
    }

    fn remember(&mut self, live: Key, here: Key) {
        if self.requests.len() >= KEPT
            && let Some(world) = &self.world
        {
            self.requests.retain(|_, here| world.is_in_flight(*here));
        }
        self.requests.insert(live, here);
    }
}

#[cfg(test)]
mod tests {
    use firstlight_sim::cost::Load;

    use super::*;
    use crate::{
        admission::{Blocks, Budget, Geometry, Tokens},
        shadow::Ran,
    };

    const GEOMETRY: Geometry = Geometry {
        context: Tokens(1024),
        block_size: Tokens(16),
        kv_blocks: Blocks(100),
        free_blocks: Blocks(100),
        max_sequences: 8,
    };

    fn shadow() -> (Feed, Shadow) {
        Shadow::fed(ShadowPolicy { name: "test".into(), budget: Budget::default() }, Clock::default())
    }

    #[test]
    fn the_replay_begins_when_the_costs_became_known_however_late_that_is_read() {
        let (_feed, mut shadow) = shadow();
        let (at, engine) = (Stamp::from_ns(1_000), EngineId(1));
        let shape = EngineShape { geometry: GEOMETRY, mixed: false };
        shadow.take(News::Attached { at, engine, shape });
        for i in 0..100 {
            let mut load = Load::default();
            load.add(0, 1 + i % 7, i % 2 == 0);
            let end = at + CostModel::default().forward(load);
            let ran = Ran { start: at, end, load, bucket: load.decode_rows, goes_on: false };
            shadow.take(News::Forward { engine, ran });
        }
        assert_eq!(shadow.world.unwrap().now(), at);
    }

    #[test]
    fn it_takes_what_it_was_told_and_ends_with_its_feed() {
        let (feed, shadow) = shadow();
        feed.tell(News::FirstToken { dispatch: 1, back: 1 });
        let thread = shadow.spawn().unwrap();
        thread::sleep(2 * BEHIND);
        assert!(!thread.is_finished(), "there may be more");
        drop(feed);
        thread.join().unwrap();
    }
}
