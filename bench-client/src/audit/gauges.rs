//! A gauge sampled over the run: its integral over time is Little's L × T, which must equal the sum of
//! the times that requests spent in what it counts (Little 1961).

use firstlight_proto::clock::Stamp;

/// Samples of one gauge, in order of time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Gauge(Vec<(Stamp, f64)>);

impl Gauge {
    /// Adds a sample.
    pub fn push(&mut self, at: Stamp, value: f64) {
        self.0.push((at, value));
    }

    /// Integral over the sampled time by the trapezoid rule, in units × s.
    pub fn integral(&self) -> f64 {
        let trapezoid = |w: &[(Stamp, f64)]| (w[0].1 + w[1].1) / 2.0 * w[1].0.since(w[0].0) as f64 / 1e9;
        self.0.windows(2).map(trapezoid).sum()
    }

    /// How far the integral may be off when `events` times the gauge moved by one between samples: each
    /// move was seen at most one gap late or early, half a gap on average.
    pub fn uncertainty(&self, events: usize) -> f64 {
        let gaps = self.0.len().saturating_sub(1).max(1) as f64;
        let (Some(first), Some(last)) = (self.0.first(), self.0.last()) else { return 0.0 };
        events as f64 / 2.0 * last.0.since(first.0) as f64 / 1e9 / gaps
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_integral_of_a_steady_gauge_is_its_value_times_the_time() {
        let mut gauge = Gauge::default();
        for i in 0..=10 {
            gauge.push(Stamp::from_ns(i * 100_000_000), 4.0);
        }
        assert!((gauge.integral() - 4.0).abs() < 1e-9);
        assert!((gauge.uncertainty(2) - 0.1).abs() < 1e-9);
    }
}
