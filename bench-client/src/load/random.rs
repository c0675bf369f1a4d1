//! Seeded noise for arrivals and lengths: the same seed gives the same load on every machine.

/// SplitMix64 (Steele, Lea, Flood 2014).
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// A stream of numbers that depends on `seed` only.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Uniform in (0, 1).
    pub fn uniform(&mut self) -> f64 {
        ((self.bits() >> 11) as f64 + 0.5) / (1_u64 << 53) as f64
    }

    /// Uniform in `low..=high`.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + (self.uniform() * (high.saturating_sub(low) + 1) as f64) as u64
    }

    /// Normal with mean 0 and deviation 1 (Box and Muller 1958).
    pub fn normal(&mut self) -> f64 {
        (-2.0 * self.uniform().ln()).sqrt() * (std::f64::consts::TAU * self.uniform()).cos()
    }

    /// Gamma with mean 1 and the given shape > 0 (Marsaglia and Tsang 2000); shape 1 is exponential.
    pub fn gamma_of_mean_one(&mut self, shape: f64) -> f64 {
        if shape < 1.0 {
            let boost = self.uniform().powf(1.0 / shape);
            return self.gamma(shape + 1.0) * boost / shape;
        }
        self.gamma(shape) / shape
    }

    fn gamma(&mut self, shape: f64) -> f64 {
        let d = shape - 1.0 / 3.0;
        let c = 1.0 / (9.0 * d).sqrt();
        loop {
            let x = self.normal();
            let v = (1.0 + c * x).powi(3);
            if v > 0.0 && self.uniform().ln() < 0.5 * x * x + d - d * v + d * v.ln() {
                return d * v;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gamma_has_mean_one_and_the_variance_of_its_shape() {
        for shape in [0.25, 1.0, 4.0] {
            let mut random = Random::new(7);
            let n = 200_000;
            let xs: Vec<f64> = (0..n).map(|_| random.gamma_of_mean_one(shape)).collect();
            let mean = xs.iter().sum::<f64>() / f64::from(n);
            let variance = xs.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / f64::from(n);
            assert!((mean - 1.0).abs() < 0.02, "mean {mean} at shape {shape}");
            assert!((variance * shape - 1.0).abs() < 0.05, "variance {variance} at shape {shape}");
        }
    }

    #[test]
    fn between_reaches_both_ends() {
        let mut random = Random::new(1);
        let seen: std::collections::BTreeSet<u64> = (0..200).map(|_| random.between(3, 6)).collect();
        assert_eq!(seen.into_iter().collect::<Vec<_>>(), [3, 4, 5, 6]);
    }
}
