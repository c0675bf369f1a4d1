//! A shadow beside the live budget: its predicted TTFT is a metric, and it follows its own budget.

use std::time::Duration;

use firstlight_proto::serve::recorder::install;
use scheduler_svc::metrics::ALL;

use crate::harness::{Engine, Scheduler, ask, forwards_of};

/// Requests per burst, and bursts: the first ones teach the shadow what forwards cost.
const BURST: u64 = 24;
const BURSTS: u64 = 20;

/// Sum and count of a histogram over its series.
fn mean(page: &str, name: &str) -> Option<(f64, f64)> {
    let total = |suffix: &str| {
        let name = format!("{name}_{suffix}");
        let series = page.lines().filter(|line| line.starts_with(&name));
        series.filter_map(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok()).sum::<f64>()
    };
    let count = total("count");
    (count > 0.0).then(|| (total("sum") / count, count))
}

#[tokio::test]
async fn a_shadow_with_smaller_rounds_predicts_a_longer_ttft_than_is_measured() {
    let page = install(ALL).expect("one test in this process installs a recorder");
    let file = std::env::temp_dir().join(format!("firstlight-shadow-{}.json", std::process::id()));
    std::fs::write(&file, r#"{"prefill_max_batch_size": 1}"#).unwrap();
    let engine = Engine::start("e", forwards_of(4.0)).await;
    let scheduler = Scheduler::start(&[engine.addr], &["--shadow-policy", file.to_str().unwrap()]).await;
    for burst in 0..BURSTS {
        let mut streams = Vec::new();
        for i in 0..BURST {
            let mut client = scheduler.client();
            let request = ask(4, burst * BURST + i);
            streams.push(tokio::spawn(async move {
                crate::harness::collect(client.generate(request).await?.into_inner()).await
            }));
        }
        for stream in streams {
            stream.await.unwrap().unwrap();
        }
    }
    // Virtual time goes on behind the live one.
    let predicted = crate::harness::until("the shadow has replayed most bursts", async || {
        tokio::time::sleep(Duration::from_millis(50)).await;
        mean(&page.render(), "firstlight_shadow_ttft_seconds").filter(|(_, n)| *n >= (BURST * 3) as f64)
    });
    let (predicted, _) = predicted.await;
    let (measured, n) = mean(&page.render(), "firstlight_ttft_seconds").unwrap();
    std::fs::remove_file(&file).unwrap();
    assert!(n >= (BURST * BURSTS) as f64);
    assert!(predicted > 2.0 * measured, "predicted {predicted} s under rounds of one, measured {measured} s");
    assert!(page.render().contains("firstlight_shadow_dropped_total{shadow=\"firstlight-shadow-"));
}
