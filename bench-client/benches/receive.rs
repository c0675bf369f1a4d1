//! How much this client takes in: one token per message as fast as a server that does no work sends them,
//! then many streams open at once. The server runs in this process and shares its cores, so the client
//! alone is faster than this.
//!
//! `cargo bench -p bench-client --bench receive -- [STREAMS] [TOKENS_PER_STREAM] [OPEN_AT_ONCE]`

use bench_client::{
    load::{
        drive::{Plan, drive},
        pacer::Due,
    },
    report::stats::Samples,
    selfcheck::null_bench,
    target::{Ask, Prompt, Record},
};
use firstlight_proto::clock::Clock;
use tokio_util::sync::CancellationToken;

const CHANNELS: usize = 8;
const WARM_UP: usize = 100;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let mut numbers = std::env::args().filter_map(|arg| arg.parse::<usize>().ok());
    let mut next = |default| numbers.next().unwrap_or(default);
    let (streams, tokens, open) = (next(2_000), next(200), next(20_000));

    let (records, seconds) = load(0, streams, tokens).await?;
    let received: u64 = records.iter().map(|r| r.output_tokens()).sum();
    println!(
        "{streams} streams × {tokens} messages of one token: {:.0} tokens/s, {} failed",
        received as f64 / seconds,
        failed(&records)
    );

    let (records, seconds) = load(open, open, 1).await?;
    let opened: Samples = records.iter().filter_map(|r| Some(r.submit_end?.since(r.sent?))).collect();
    println!(
        "{open} streams open at once before the first token: {} failed, headers after p50 {:.0} ms, all done in {seconds:.2} s",
        failed(&records),
        opened.percentile(0.5).unwrap_or(f64::NAN) / 1e6
    );
    Ok(())
}

/// `streams` requests at once for `tokens` tokens each, to a server that holds back until `held` streams
/// are open.
async fn load(held: usize, streams: usize, tokens: usize) -> anyhow::Result<(Vec<Record>, f64)> {
    let (clock, stop) = (Clock::new(), CancellationToken::new());
    let _ended = stop.clone().drop_guard();
    let bench = null_bench(clock, CHANNELS, held, stop).await?;
    let plan = |requests: usize| Plan {
        due: Due::At(vec![0; requests]),
        asks: vec![Ask::new(Prompt::Ids(vec![1]), tokens as u32); requests],
        max_concurrency: None,
        hang_ups: None,
        id_prefix: "receive".to_owned(),
        run: 0,
    };
    if held == 0 {
        drive(&bench, plan(WARM_UP)).await;
    }
    let start = clock.now();
    let records = drive(&bench, plan(streams)).await;
    Ok((records, clock.now().since(start) as f64 / 1e9))
}

fn failed(records: &[Record]) -> usize {
    records.iter().filter(|r| !r.completed()).count()
}
