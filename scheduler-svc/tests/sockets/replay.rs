//! A replay decides as the live services did: the same requests, queued when they were, go in the same rounds.

use std::time::Duration;

use firstlight_proto::{clock::Stamp, v1};
use scheduler_svc::{
    admission::{Blocks, Budget, Geometry, Key, Request, Round, Tokens},
    replay::{Arrival, EngineShape, Observer, Story, Wire, World},
};

use crate::harness::{Engine, Output, Scheduler, ask, forwards_of};

const REQUESTS: u64 = 48;
const NEW_TOKENS: u32 = 4;

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

/// Serves a burst and gives what each request's timeline tells, in the order they were queued.
async fn live(flags: &[&str]) -> Vec<Output> {
    let engine = Engine::start("e", forwards_of(40.0)).await;
    let scheduler = Scheduler::start(&[engine.addr], flags).await;
    let mut streams = Vec::new();
    for seed in 0..REQUESTS {
        let mut client = scheduler.client();
        streams.push(tokio::spawn(async move {
            crate::harness::collect(client.generate(ask(NEW_TOKENS, seed)).await?.into_inner()).await
        }));
    }
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
    let mut world = World::new(budget, wire, forwards_of(40.0), Rounds::default(), start).unwrap();
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
        // Who was quick enough for the first round is a matter of microseconds; all later rounds are the budget's.
        let (mut live, mut replayed) = (rounds_of(&timelines), replayed(&outputs, budget));
        let first = live.remove(0).len();
        assert_eq!(first, replayed.remove(0).len(), "{flags:?}");
        assert_eq!(live, replayed, "{flags:?}");
    }
}
