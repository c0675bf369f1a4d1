//! A peer's own view of its TTFT, from its Prometheus metrics: means over a run of what it calls queue
//! and prefill time.

use super::prometheus::Scrape;
use crate::report::results::ServerView;

/// What the server says of the time between two scrapes; `None` of a server we do not know.
pub fn view(before: &Scrape, after: &Scrape) -> Option<ServerView> {
    let grown = |name: &str| after.has(name).then(|| after.sum(name) - before.sum(name));
    let mean_ms = |metric: &str| {
        let count = grown(&format!("{metric}_count")).filter(|&n| n > 0.0)?;
        Some(1e3 * grown(&format!("{metric}_sum"))? / count)
    };
    if let Some(ttft) = mean_ms("vllm:time_to_first_token_seconds") {
        return Some(ServerView {
            server: "vLLM".to_owned(),
            ttft_ms: Some(ttft),
            queue_ms: mean_ms("vllm:request_queue_time_seconds"),
            prefill_ms: mean_ms("vllm:request_prefill_time_seconds"),
            ..ServerView::default()
        });
    }
    // llama.cpp exports no count of requests: its prefill time is known per prompt token only.
    let tokens = grown("llamacpp:prompt_tokens_total").filter(|&n| n > 0.0)?;
    let seconds = grown("llamacpp:prompt_seconds_total")?;
    Some(ServerView {
        server: "llama.cpp".to_owned(),
        prefill_ms_per_prompt_token: Some(1e3 * seconds / tokens),
        ..ServerView::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn means_cover_the_run_only() {
        let metrics = |sum: f64, n: f64| {
            Scrape::parse(&format!(
                "# HELP x\nvllm:time_to_first_token_seconds_sum{{model=\"a\"}} {sum}\n\
                 vllm:time_to_first_token_seconds_count{{model=\"a\"}} {n}\n\
                 vllm:request_queue_time_seconds_sum{{e=\"0\"}} {0}\nvllm:request_queue_time_seconds_sum{{e=\"1\"}} {0}\n\
                 vllm:request_queue_time_seconds_count {n}\n",
                sum / 4.0
            ))
        };
        let view = view(&metrics(100.0, 10.0), &metrics(104.0, 12.0)).unwrap();
        assert_eq!((view.ttft_ms, view.queue_ms, view.prefill_ms), (Some(2000.0), Some(1000.0), None));
    }

    #[test]
    fn an_unknown_server_has_no_view() {
        let other = Scrape::parse("up 1\nrequests_total 7\n");
        assert_eq!(view(&other, &other), None);
    }
}
