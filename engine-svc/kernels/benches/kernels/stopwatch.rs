//! Timing for benchmarks.

use std::time::Instant;

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
