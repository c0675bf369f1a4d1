//! Several engines behind one scheduler.

use firstlight_tests::{client::ids_request, pair::Pair, scrape::Page, wait};
use futures_util::future::try_join_all;

#[tokio::test]
async fn two_engines_share_the_load() {
    let pair = Pair::sim().engines(2).scheduler(&["--prefill-max-batch-size", "4"]).start().await;
    let client = pair.client().await;
    assert_eq!(client.model().await.engines.len(), 2);
    try_join_all((1..=256).map(|first| client.generate(ids_request(&[first], 32)))).await.unwrap();
    let mut generated = Vec::new();
    for address in &pair.engine_metrics {
        generated.push(Page::of(address).await.sum("firstlight_engine_generated_tokens_total"));
    }
    assert_eq!(generated.iter().sum::<f64>(), 256.0 * 32.0);
    // Equal engines on a busy machine: the slower one asks for less.
    let (least, most) = (generated[0].min(generated[1]), generated[0].max(generated[1]));
    assert!(least >= most / 4.0, "{generated:?}");
}

#[tokio::test]
async fn an_engine_that_comes_back_is_used_again() {
    let mut pair = Pair::sim().engines(2).start().await;
    pair.engines[1].kill();
    pair.engines[1].restart();
    let client = pair.client().await;
    pair.all_attached().await;
    try_join_all((1..=32).map(|first| client.generate(ids_request(&[first], 8)))).await.unwrap();
    assert!(Page::of(&pair.engine_metrics[1]).await.sum("firstlight_engine_generated_tokens_total") > 0.0);
}

/// What the scheduler tells of each engine.
const GAUGES: [&str; 6] = [
    "firstlight_link_active_requests",
    "firstlight_link_kv_blocks",
    "firstlight_link_kv_blocks_free",
    "firstlight_link_kv_blocks_left",
    "firstlight_clock_offset_seconds",
    "firstlight_clock_bound_seconds",
];

#[tokio::test]
async fn an_engine_that_is_gone_leaves_no_gauges_behind() {
    let mut pair = Pair::sim().engines(2).start().await;
    // An engine is called by its host and port.
    let label = |engine: usize| {
        let address = &pair.engines[engine].address;
        format!("{}\"", &address[address.rfind(':').expect("a port")..])
    };
    let (stays, goes) = (label(0), label(1));
    wait::until("the gauges of both", || async {
        let page = Page::of(&pair.scheduler_metrics).await;
        GAUGES.iter().all(|gauge| page.has(gauge, &stays) && page.has(gauge, &goes)).then_some(())
    })
    .await;
    pair.engines[1].kill();
    let page = wait::until("one engine", || async {
        let page = Page::of(&pair.scheduler_metrics).await;
        (page.sum("firstlight_engines_attached") == 1.0).then_some(page)
    })
    .await;
    for gauge in GAUGES {
        assert!(page.has(gauge, &stays) && !page.has(gauge, &goes), "{gauge}:\n{}", page.text());
    }
    assert_eq!(page.sum_where("firstlight_link_losses_total", &goes), 1.0, "counters stay");
}
