//! Several engines behind one scheduler.

use firstlight_tests::{client::ids_request, pair::Pair, scrape::Page};
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
