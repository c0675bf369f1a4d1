//! Metrics that are promised are there, with their labels, after one request.

use firstlight_tests::{client::ids_request, pair::Pair, scrape::Page};

/// Series of the scheduler: name and a label it carries.
const SCHEDULER: &[(&str, &str)] = &[
    ("firstlight_ttft_segment_seconds_bucket", "segment=\"queue_wait\""),
    ("firstlight_ttft_segment_seconds_sum", "ttft_band=\"slo_miss\""),
    ("firstlight_ttft_seconds_bucket", "ttft_band=\"ok\""),
    ("firstlight_itl_seconds_bucket", ""),
    ("firstlight_latency_seconds_bucket", ""),
    ("firstlight_queue_blocked_seconds_total", "cause=\"max_active\""),
    ("firstlight_negative_segments_total", "segment=\"dispatch\""),
    ("firstlight_ttft_unsplit_total", ""),
    ("firstlight_ttft_failures_total", "kind=\"unavailable\""),
    ("firstlight_requests_received_total", ""),
    ("firstlight_requests_finished_total", "outcome=\"length\""),
    ("firstlight_refusals_total", "kind=\"never_fits\""),
    ("firstlight_cancels_total", "by=\"client\""),
    ("firstlight_prompt_tokens_total", ""),
    ("firstlight_output_tokens_total", ""),
    ("firstlight_preemptions_total", ""),
    ("firstlight_attempts_lost_total", ""),
    ("firstlight_link_attachments_total", "engine="),
    ("firstlight_link_losses_total", "engine="),
    ("firstlight_clock_offset_seconds", "engine="),
    ("firstlight_clock_bound_seconds", "engine="),
    ("firstlight_spans_dropped_total", ""),
    ("firstlight_traces_dropped_total", "reason=\"queue_full\""),
    // What the Gateway API Inference Extension asks a model server for.
    ("firstlight_pending_requests", ""),
    ("firstlight_active_requests", ""),
    ("firstlight_kv_utilization_ratio", ""),
];

/// The same of an engine.
const ENGINE: &[(&str, &str)] = &[
    ("firstlight_engine_segment_seconds_bucket", "segment=\"prefill\""),
    ("firstlight_engine_wait_seconds_bucket", "cause=\"engine_busy\""),
    ("firstlight_engine_blocked_seconds_total", "cause=\"decode_first\""),
    ("firstlight_engine_forward_seconds_bucket", "kind=\"decode\""),
    ("firstlight_engine_forward_seconds_bucket", "bucket=\"1\""),
    ("firstlight_engine_forward_rows_bucket", "kind=\"prefill\""),
    ("firstlight_engine_padding_rows_total", ""),
    ("firstlight_engine_generated_tokens_total", ""),
    ("firstlight_engine_kv_blocks_free", ""),
    ("firstlight_engine_preemptions_total", ""),
    ("firstlight_engine_cancels_total", ""),
    ("firstlight_engine_spans_dropped_total", ""),
];

#[tokio::test]
async fn every_promised_metric_is_on_the_pages() {
    let pair = Pair::sim().start().await;
    pair.client().await.generate(ids_request(&[1, 2, 3], 4)).await.unwrap();
    for (address, promised) in [(&pair.scheduler_metrics, SCHEDULER), (&pair.engine_metrics[0], ENGINE)] {
        let page = Page::of(address).await;
        let missing: Vec<_> = promised.iter().filter(|(name, label)| !page.has(name, label)).collect();
        assert!(missing.is_empty(), "{missing:?} is not on {address}:\n{}", page.text());
    }
}
