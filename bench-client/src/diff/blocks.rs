//! How far neighbouring requests depend on each other: the length of the blocks that are resampled whole.

/// Shortest series in blocks: fewer say nothing about how blocks differ.
const AT_LEAST: usize = 6;

/// Requests per block for `series` of differences, one per run: twice the optimum of Politis and White
/// (2004, corrected 2009), since quantiles forget more slowly than the mean it is made for, and at least
/// the square root of a run.
pub fn block_length(series: &[Vec<f64>]) -> usize {
    let longest = series.iter().map(Vec::len).max().unwrap_or(0);
    let total: usize = series.iter().map(Vec::len).sum();
    if longest < 2 * AT_LEAST {
        return 1;
    }
    let root = (longest as f64).sqrt();
    let optimum = optimum(&autocovariances(series, longest), total, longest);
    (2.0 * optimum).max(root).ceil().min((longest / AT_LEAST) as f64).max(1.0) as usize
}

/// Pooled over runs, each around its own mean; up to the lag that can matter.
fn autocovariances(series: &[Vec<f64>], longest: usize) -> Vec<f64> {
    let lags = (2 * patience(longest)).min(longest - 1);
    let total: usize = series.iter().map(Vec::len).sum();
    let mut sums = vec![0.0; lags + 1];
    for run in series {
        let mean = run.iter().sum::<f64>() / run.len().max(1) as f64;
        for (lag, sum) in sums.iter_mut().enumerate() {
            let apart = run.iter().zip(run.iter().skip(lag));
            *sum += apart.map(|(x, y)| (x - mean) * (y - mean)).sum::<f64>();
        }
    }
    sums.into_iter().map(|sum| sum / total as f64).collect()
}

/// Lags that must all be small before the rest is taken for noise, and lags looked at in search of them.
fn patience(n: usize) -> usize {
    let quiet = (n as f64).log10().sqrt().ceil().max(5.0);
    ((n as f64).sqrt().ceil() + quiet) as usize
}

fn optimum(covariances: &[f64], total: usize, longest: usize) -> f64 {
    if covariances[0] <= 0.0 {
        return 1.0;
    }
    let quiet = (longest as f64).log10().sqrt().ceil().max(5.0) as usize;
    let small = 2.0 * ((total as f64).log10() / total as f64).sqrt();
    let noise = |lag: usize| covariances.get(lag).is_none_or(|c| (c / covariances[0]).abs() < small);
    let last = covariances.len() - 1;
    let memory = (0..last).find(|&m| (1..=quiet).all(|k| noise(m + k))).unwrap_or(last / 2).max(1);
    let width = (2 * memory).min(last);
    // A flat-top window: whole up to half of its width, then falling to 0.
    let window = |lag: usize| (2.0 * (1.0 - lag as f64 / width as f64)).clamp(0.0, 1.0);
    let (mut spectrum, mut slope) = (covariances[0], 0.0);
    for (lag, covariance) in covariances.iter().enumerate().take(width + 1).skip(1) {
        spectrum += 2.0 * window(lag) * covariance;
        slope += 2.0 * window(lag) * lag as f64 * covariance;
    }
    if spectrum <= 0.0 {
        return (longest as f64).sqrt();
    }
    (1.5 * (slope / spectrum).powi(2) * longest as f64).cbrt()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::random::Random;

    fn autoregressive(phi: f64, n: usize) -> Vec<f64> {
        let mut random = Random::new(5);
        let mut x = 0.0;
        let mut next = || {
            x = phi * x + random.normal();
            x
        };
        (0..n).map(|_| next()).collect()
    }

    #[test]
    fn blocks_grow_with_the_memory_of_the_series() {
        let length = |phi| block_length(&[autoregressive(phi, 1000)]);
        let (none, some, much) = (length(0.0), length(0.8), length(0.95));
        assert!(none >= 32 && none <= some && some < much, "{none} {some} {much}");
        assert!(much <= 1000 / AT_LEAST);
    }

    #[test]
    fn a_series_without_noise_or_without_length_has_a_length_too() {
        assert_eq!(block_length(&[]), 1);
        assert_eq!(block_length(&[vec![1.0; 5]]), 1);
        assert_eq!(block_length(&[vec![7.0; 100]]), 10);
    }
}
