//! The task that replays the live arrivals under the shadow's budget.

use std::{collections::HashMap, time::Duration};

use firstlight_proto::clock::{Clock, Stamp};
use firstlight_sim::cost::CostModel;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::{Feed, News, ShadowPolicy, costs::Costs};
use crate::{
    admission::{EngineId, Key},
    metrics::{ShadowMetrics, in_seconds},
    replay::{Arrival, EngineShape, Observer, Prompt, Story, World},
};

/// News taken at once before others get their turn.
const BATCH: usize = 256;
/// How often news are taken and virtual time goes on: to wake up for each of them would cost more than the replay.
const TICK: Duration = Duration::from_millis(100);
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
    costs: Costs,
    /// Live attachments.
    engines: HashMap<EngineId, Attached>,
    /// There once the costs are known.
    world: Option<World<CostModel, Told>>,
    /// Live requests by their name in the live core, with their name here.
    requests: HashMap<Key, Key>,
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
    received: HashMap<Key, Stamp>,
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
            costs: Costs::default(),
            engines: HashMap::new(),
            world: None,
            requests: HashMap::new(),
        };
        (feed, shadow)
    }

    /// Replays until `stop`.
    pub async fn run(mut self, stop: CancellationToken) {
        let mut news = Vec::with_capacity(BATCH);
        let mut tick = tokio::time::interval(TICK);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            if stop.run_until_cancelled(tick.tick()).await.is_none() {
                return;
            }
            while !self.news.is_empty() {
                self.news.recv_many(&mut news, BATCH).await;
                news.drain(..).for_each(|news| self.take(news));
                tokio::task::yield_now().await;
            }
            self.run_until(self.clock.now() - BEHIND);
        }
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
            News::Forward { engine, step } => {
                if self.costs.forward(engine, &step) {
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
        let told = Told { metrics: self.metrics.clone(), received: HashMap::new() };
        match World::new(self.policy.budget.clone(), wire, cost, told, self.clock.now()) {
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
