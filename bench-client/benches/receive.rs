//! How fast this client receives: one token per message from a server that does no work. The server runs
//! in this process and shares its cores, so the client alone is faster than this.
//!
//! `cargo bench -p bench-client --bench receive -- [STREAMS] [TOKENS_PER_STREAM]`

use bench_client::{
    load::{
        drive::{Plan, drive},
        pacer::Due,
    },
    report::stats::Samples,
    selfcheck::null_bench,
    target::{Ask, Prompt},
};
use firstlight_proto::clock::Clock;
use tokio_util::sync::CancellationToken;

const CHANNELS: usize = 8;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let mut numbers = std::env::args().filter_map(|arg| arg.parse::<usize>().ok());
    let (streams, tokens) = (numbers.next().unwrap_or(2_000), numbers.next().unwrap_or(200));
    let (clock, stop) = (Clock::new(), CancellationToken::new());
    let bench = null_bench(clock, CHANNELS, stop.clone()).await?;
    let plan = Plan {
        due: Due::At(vec![0; streams]),
        asks: vec![Ask { prompt: Prompt::Ids(vec![1]), max_new_tokens: tokens as u32 }; streams],
        max_concurrency: None,
        hang_ups: None,
        id_prefix: "receive".to_owned(),
        run: 0,
    };
    let start = clock.now();
    let records = drive(&bench, plan).await;
    let seconds = clock.now().since(start) as f64 / 1e9;
    stop.cancel();
    let received: u64 = records.iter().map(|r| r.output_tokens()).sum();
    let failed = records.iter().filter(|r| !r.completed()).count();
    let opened: Samples = records.iter().filter_map(|r| Some(r.submit_end?.since(r.sent?))).collect();
    println!(
        "{streams} streams × {tokens} messages of one token: {:.0} tokens/s, {failed} failed, headers after p50 {:.2} ms",
        received as f64 / seconds,
        opened.percentile(0.5).unwrap_or(f64::NAN) / 1e6
    );
    Ok(())
}
