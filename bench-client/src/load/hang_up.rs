//! Clients that do not wait for the end: which requests are given up, and when. Pure.

use std::time::Duration;

use super::random::Random;

/// How many clients hang up, and when.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HangUps {
    /// Share of requests, 0 to 1.
    pub share: f64,
    /// Latest moment, from when a request is sent; evenly spread up to it.
    pub within: Duration,
    /// Seed of the noise.
    pub seed: u64,
}

impl HangUps {
    /// How long request `index` of pass `pass` is waited for; `None` = to its end.
    pub fn patience(&self, pass: usize, index: usize) -> Option<Duration> {
        let mut random = Random::new(self.seed ^ ((pass as u64) << 40) ^ index as u64);
        (random.uniform() < self.share).then(|| self.within.mul_f64(random.uniform()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_of_requests_is_given_up_within_the_time() {
        let hang_ups = HangUps { share: 0.1, within: Duration::from_secs(1), seed: 3 };
        let patience: Vec<Duration> = (0..10_000).filter_map(|i| hang_ups.patience(0, i)).collect();
        assert!((900..1_100).contains(&patience.len()), "{}", patience.len());
        assert!(patience.iter().all(|p| *p < Duration::from_secs(1)));
        assert!(patience.iter().any(|p| *p < Duration::from_millis(50)));
        assert_eq!(hang_ups.patience(1, 7), hang_ups.patience(1, 7));
    }
}
