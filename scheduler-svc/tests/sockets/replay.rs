//! A replay decides as the live services did: the same requests, queued when they were, go in the same rounds.

use std::time::Duration;

use firstlight_proto::{clock::Stamp, v1};
use scheduler_svc::{
    admission::{Blocks, Budget, Geometry, Key, Request, Round, Tokens},
    replay::{Arrival, EngineShape, Observer, Story, Wire, World},
};

use crate::harness::{Engine, Output, Scheduler, ask, collect, forwards_of, until};

const REQUESTS: u64 = 48;
const NEW_TOKENS: u32 = 4;
/// Long beside what it takes to queue a burst on a busy machine.
const FORWARD_MS: f64 = 100.0;

#[derive(Default)]
struct Rounds(Vec<Vec<Key>>);

impl Observer for Rounds {
    fn round(&mut self, round: &Round) {
        self.0.push(round.batch.iter().map(|admitted| admitted.key).collect());
    }

    fn ended(&mut self, story: &Story) {
        assert!(story.finished(), "{story:?}");
    }
}

/// Serves a burst and gives what each request's timeline tells, in the order they were queued. The others are queued
/// while the first one's forward runs: who joins a round that begins with the burst is a matter of microseconds.
async fn live(flags: &[&str]) -> Vec<Output> {
    let engine = Engine::start("e", forwards_of(FORWARD_MS)).await;
    let scheduler = Scheduler::start(&[engine.addr], flags).await;
    let send = |seed| {
        let mut client = scheduler.client();
        tokio::spawn(async move { collect(client.generate(ask(NEW_TOKENS, seed)).await?.into_inner()).await })
    };
    let mut streams = vec![send(0)];
    until("the first is active", async || (scheduler.active().await == 1).then_some(())).await;
    streams.extend((1..REQUESTS).map(send));
    let mut outputs = Vec::new();
    for stream in streams {
        outputs.push(stream.await.unwrap().unwrap());
    }
    outputs.sort_by_key(|output| output.scheduler().queued_ns);
    outputs
}

/// Rounds as the positions of their requests in order of arrival.
fn rounds_of(timelines: &[&v1::SchedulerTimeline]) -> Vec<Vec<usize>> {
    let mut rounds = vec![Vec::new(); timelines.iter().map(|t| t.round as usize).max().unwrap()];
    for (place, timeline) in timelines.iter().enumerate() {
        rounds[timeline.round as usize - 1].push(place);
    }
    rounds
}

fn replayed(outputs: &[Output], budget: Budget) -> Vec<Vec<usize>> {
    let geometry = Geometry {
        context: Tokens(40_000),
        block_size: Tokens(16),
        kv_blocks: Blocks(4_096),
        free_blocks: Blocks(4_096),
        max_sequences: 256,
    };
    let wire = Wire {
        dispatch: Duration::from_micros(300),
        begun: Duration::from_micros(300),
        back: Duration::from_micros(300),
        turnaround: Duration::from_micros(50),
        ..Wire::default()
    };
    let start = Stamp::from_ns(outputs[0].scheduler().queued_ns);
    let mut world = World::new(budget, wire, forwards_of(FORWARD_MS), Rounds::default(), start).unwrap();
    world.attach(EngineShape { geometry, mixed: false });
    let keys: Vec<Key> = outputs
        .iter()
        .map(|output| {
            world.run_until(Stamp::from_ns(output.scheduler().queued_ns));
            let usage = output.finished.usage.unwrap();
            let request = Request::new(Tokens(usage.prompt_tokens), Tokens(NEW_TOKENS));
            world.offer(Arrival::new(request)).unwrap()
        })
        .collect();
    world.run_out();
    let place = |key: &Key| keys.iter().position(|known| known == key).unwrap();
    world.into_observer().0.iter().map(|round| round.iter().map(place).collect()).collect()
}

#[tokio::test]
async fn a_replayed_burst_goes_in_the_rounds_that_it_went_in() {
    let budgets = [
        (vec!["--prefill-max-batch-size", "4"], Budget { prefill_max_batch_size: 4, ..Budget::default() }),
        (vec!["--prefill-max-batch-size", "16"], Budget { prefill_max_batch_size: 16, ..Budget::default() }),
        (vec!["--max-active-requests", "10"], Budget { max_active_requests: 10, ..Budget::default() }),
        (vec!["--prefill-max-tokens", "20"], Budget { prefill_max_tokens: Tokens(20), ..Budget::default() }),
    ];
    for (flags, budget) in budgets {
        let outputs = live(&flags).await;
        let timelines: Vec<_> = outputs.iter().map(Output::scheduler).collect();
        assert_eq!(rounds_of(&timelines), replayed(&outputs, budget), "{flags:?}");
    }
}
