//! The live line of a run: on a terminal only.

use std::{io::IsTerminal as _, sync::Arc, time::Duration};

use indicatif::{ProgressBar, ProgressStyle};
use tokio::task::JoinHandle;

use crate::load::live::Live;

const REFRESH: Duration = Duration::from_millis(200);

/// A progress bar that follows `live`; removed when dropped.
#[derive(Debug)]
pub struct Progress {
    bar: ProgressBar,
    follower: Option<JoinHandle<()>>,
}

impl Progress {
    /// Shows `total` requests under `title`, unless `quiet` or stderr is no terminal.
    pub fn start(title: String, total: usize, live: Arc<Live>, quiet: bool) -> Self {
        if quiet || !std::io::stderr().is_terminal() {
            return Self { bar: ProgressBar::hidden(), follower: None };
        }
        let bar = ProgressBar::new(total as u64);
        let style = ProgressStyle::with_template("{prefix} {bar:30} {pos}/{len} {elapsed} {msg}");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()).progress_chars("█▉▊▋▌▍▎▏ "));
        bar.set_prefix(title);
        let shown = bar.clone();
        let follower = tokio::spawn(async move {
            let (mut tick, mut before) = (tokio::time::interval(REFRESH), 0);
            loop {
                tick.tick().await;
                let now = live.glance();
                let rate = (now.tokens - before) as f64 / REFRESH.as_secs_f64();
                before = now.tokens;
                let ttft = now
                    .ttft_ms
                    .map_or(String::new(), |(p50, p99)| format!(" · TTFT p50 {p50:.1} p99 {p99:.1} ms"));
                let failed =
                    if now.failed > 0 { format!(" · {} failed", now.failed) } else { String::new() };
                shown.set_position(now.done);
                shown.set_message(format!(
                    "{} active · {rate:.0} tokens/s{ttft}{failed}",
                    now.fired - now.done
                ));
            }
        });
        Self { bar, follower: Some(follower) }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(follower) = self.follower.take() {
            follower.abort();
        }
        self.bar.finish_and_clear();
    }
}
