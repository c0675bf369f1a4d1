//! Timing for benchmarks.

use std::time::{Duration, Instant};

/// Median seconds of `runs` calls, after one to warm up.
#[expect(clippy::disallowed_methods, reason = "a stopwatch for kernels, not a stamp of a request")]
pub fn median(runs: usize, mut work: impl FnMut()) -> f64 {
    work();
    let mut seconds: Vec<f64> = (0..runs)
        .map(|_| {
            let start = Instant::now();
            work();
            start.elapsed().as_secs_f64()
        })
        .collect();
    seconds.sort_by(f64::total_cmp);
    seconds[runs / 2]
}

/// Where the time of repeated work goes, in `N` parts.
pub struct Laps<const N: usize> {
    since: Instant,
    spent: [Duration; N],
}

#[expect(clippy::disallowed_methods, reason = "a stopwatch for kernels, not a stamp of a request")]
impl<const N: usize> Laps<N> {
    pub fn new() -> Self {
        Self { since: Instant::now(), spent: [Duration::ZERO; N] }
    }

    /// Begins a lap.
    pub fn start(&mut self) {
        self.since = Instant::now();
    }

    /// Ends a lap, which was spent on this part, and begins the next.
    pub fn end(&mut self, part: usize) {
        let now = Instant::now();
        self.spent[part] += now - self.since;
        self.since = now;
    }

    /// Each part's share of all laps.
    pub fn shares(&self) -> [f64; N] {
        let whole: Duration = self.spent.iter().sum();
        self.spent.map(|spent| spent.as_secs_f64() / whole.as_secs_f64())
    }
}
