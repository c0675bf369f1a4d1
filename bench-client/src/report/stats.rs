//! Percentiles and means of raw samples.

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

/// Fewer samples than this make a p99 that is little more than the maximum; it is marked.
pub const ENOUGH_FOR_P99: usize = 100;

/// Raw samples in ns, sorted.
#[derive(Clone, Debug, Default)]
pub struct Samples(Vec<i64>);

impl FromIterator<i64> for Samples {
    fn from_iter<I: IntoIterator<Item = i64>>(iter: I) -> Self {
        let mut samples: Vec<i64> = iter.into_iter().collect();
        samples.sort_unstable();
        Self(samples)
    }
}

impl Samples {
    /// How many.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Mean, ns.
    pub fn mean(&self) -> Option<f64> {
        let sum: i128 = self.0.iter().map(|&x| i128::from(x)).sum();
        (!self.0.is_empty()).then(|| sum as f64 / self.0.len() as f64)
    }

    /// Population standard deviation, ns.
    pub fn deviation(&self) -> Option<f64> {
        let mean = self.mean()?;
        let squares: f64 = self.0.iter().map(|&x| (x as f64 - mean).powi(2)).sum();
        Some((squares / self.0.len() as f64).sqrt())
    }

    /// The value below which the share `q` (0 to 1) lies, by linear interpolation between ranks, ns.
    pub fn percentile(&self, q: f64) -> Option<f64> {
        let last = self.0.len().checked_sub(1)?;
        let place = q.clamp(0.0, 1.0) * last as f64;
        let below = place.floor() as usize;
        let above = (below + 1).min(last);
        let share = place - below as f64;
        Some(self.0[below] as f64 + (self.0[above] - self.0[below]) as f64 * share)
    }

    /// Mean and the usual percentiles in ms.
    pub fn percentiles(&self) -> Percentiles {
        let ms = |ns: Option<f64>| ns.map(|ns| ns / 1e6);
        Percentiles {
            mean_ms: ms(self.mean()),
            p50_ms: ms(self.percentile(0.50)),
            p95_ms: ms(self.percentile(0.95)),
            p99_ms: ms(self.percentile(0.99)),
            std_ms: ms(self.deviation()),
            n: self.len(),
        }
    }
}

/// Mean and percentiles in ms; `None` (JSON `null`) when nothing was measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Percentiles {
    /// Mean.
    pub mean_ms: Option<f64>,
    /// Median.
    pub p50_ms: Option<f64>,
    /// 95th percentile.
    pub p95_ms: Option<f64>,
    /// 99th percentile; of fewer than 100 samples it is marked in the text.
    pub p99_ms: Option<f64>,
    /// Population standard deviation.
    pub std_ms: Option<f64>,
    /// Number of samples.
    pub n: usize,
}

/// Half-width of the 95 % confidence interval of the mean of `values` (Student's t); `None` for fewer
/// than two.
pub fn confidence_95(values: &[f64]) -> Option<f64> {
    let n = values.len();
    if n < 2 {
        return None;
    }
    let mean = values.iter().sum::<f64>() / n as f64;
    let variance = values.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / (n - 1) as f64;
    Some(student_t_95((n - 1) as f64) * (variance / n as f64).sqrt())
}

/// Half-width of the central 95 % of Student's t, in standard errors; degrees of freedom ≥ 1 need not be
/// whole.
pub fn student_t_95(freedom: f64) -> f64 {
    const T: [f64; 30] = [
        12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145,
        2.131, 2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048,
        2.045, 2.042,
    ];
    let freedom = freedom.max(1.0);
    let below = freedom.floor() as usize;
    match (T.get(below - 1), T.get(below)) {
        (Some(low), Some(high)) => low + (high - low) * (freedom - below as f64),
        // Within 0.002 of the table's continuation (Peizer and Pratt's first term).
        _ => 1.96 + 2.37 / freedom,
    }
}

/// Longest time that a histogram tells apart from longer ones: an hour.
const LONGEST_US: u64 = 3_600_000_000;

/// A histogram of times in µs with so many significant digits, 1 to 5. It has its whole range from the start: saturating
/// records do not widen it.
pub fn histogram_us(digits: u8) -> Histogram<u64> {
    Histogram::new_with_max(LONGEST_US, digits).expect("a sound range and number of digits")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_interpolate_between_ranks() {
        let samples: Samples = [40, 10, 30, 20].into_iter().collect();
        assert_eq!(samples.percentile(0.5), Some(25.0));
        assert_eq!(samples.percentile(0.95), Some(38.5));
        assert_eq!(samples.percentile(1.0), Some(40.0));
        assert_eq!(samples.mean(), Some(25.0));
    }

    #[test]
    fn nothing_measured_is_null_and_not_zero() {
        let none = Samples::default().percentiles();
        assert_eq!((none.mean_ms, none.p99_ms, none.n), (None, None, 0));
        assert_eq!(serde_json::to_value(none).unwrap()["p50_ms"], serde_json::Value::Null);
    }

    #[test]
    fn negative_samples_keep_their_sign() {
        let samples: Samples = [-5, 5, -10].into_iter().collect();
        assert_eq!(samples.percentile(0.0), Some(-10.0));
    }

    #[test]
    fn the_interval_of_two_runs_uses_one_degree_of_freedom() {
        let half = confidence_95(&[10.0, 12.0]).unwrap();
        assert!((half - 12.706).abs() < 1e-9, "{half}");
        assert_eq!(confidence_95(&[10.0]), None);
    }

    #[test]
    fn t_falls_from_the_cauchy_value_to_the_normal_one() {
        assert_eq!((student_t_95(0.5), student_t_95(1.0)), (12.706, 12.706));
        assert!((student_t_95(1.5) - (12.706 + 4.303) / 2.0).abs() < 1e-9);
        for (freedom, t) in [(30.0, 2.042), (60.0, 2.000), (120.0, 1.980), (1e9, 1.960)] {
            assert!((student_t_95(freedom) - t).abs() < 0.003, "{freedom}");
        }
    }

    #[test]
    fn a_histogram_tells_long_times_apart() {
        let mut times = histogram_us(2);
        [1_000, 90_000_000].into_iter().for_each(|us| times.saturating_record(us));
        assert!((times.value_at_quantile(1.0) as f64 / 90e6 - 1.0).abs() < 0.01, "{}", times.max());
    }
}
