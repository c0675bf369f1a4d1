//! Quantiles after Harrell and Davis (1982): a weighted mean of all ordered samples, with the weights of a
//! beta distribution around the rank. They vary less than one sample at a rank does, and since they are
//! means, what the samples are made of adds up at each of them.

/// How a figure is taken from samples.
#[derive(Clone, Debug, PartialEq)]
pub enum Statistic {
    /// All samples alike.
    Mean,
    /// Weighted around a rank.
    Quantile(Weights),
}

/// Weight below each share of the ordered samples.
#[derive(Clone, Debug, PartialEq)]
pub struct Weights(Vec<f64>);

impl Statistic {
    /// The `q`-quantile (0 < q < 1) of about `n` samples.
    pub fn quantile(q: f64, n: usize) -> Self {
        let (a, b) = ((n + 1) as f64 * q, (n + 1) as f64 * (1.0 - q));
        Self::Quantile(Weights((0..=n).map(|i| beta_below(i as f64 / n as f64, a, b)).collect()))
    }

    /// The weight of the samples between the shares `from` and `to` of all, in order.
    pub fn weight(&self, from: f64, to: f64) -> f64 {
        match self {
            Self::Mean => to - from,
            Self::Quantile(weights) => weights.below(to) - weights.below(from),
        }
    }
}

impl Weights {
    fn below(&self, share: f64) -> f64 {
        let last = self.0.len() - 1;
        let place = share.clamp(0.0, 1.0) * last as f64;
        let at = (place.floor() as usize).min(last);
        let above = (at + 1).min(last);
        self.0[at] + (self.0[above] - self.0[at]) * (place - at as f64)
    }
}

/// Regularized incomplete beta function, by its continued fraction (Lentz's method; DLMF 8.17.22).
fn beta_below(x: f64, a: f64, b: f64) -> f64 {
    if x <= 0.0 || x >= 1.0 {
        return x.clamp(0.0, 1.0);
    }
    // The fraction converges fast below the mean only.
    if x > (a + 1.0) / (a + b + 2.0) {
        return 1.0 - beta_below(1.0 - x, b, a);
    }
    let front = (ln_gamma(a + b) - ln_gamma(a) - ln_gamma(b) + a * x.ln() + b * (1.0 - x).ln()).exp() / a;
    let away_from_zero = |v: f64| if v.abs() < 1e-300 { 1e-300 } else { v };
    let (mut c, mut d) = (1.0, 1.0 / away_from_zero(1.0 - (a + b) * x / (a + 1.0)));
    let mut fraction = d;
    for m in 1..10_000 {
        let m = f64::from(m);
        let terms = [
            m * (b - m) * x / ((a + 2.0 * m - 1.0) * (a + 2.0 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2.0 * m) * (a + 2.0 * m + 1.0)),
        ];
        let mut step = 1.0;
        for term in terms {
            d = 1.0 / away_from_zero(1.0 + term * d);
            c = away_from_zero(1.0 + term / c);
            step *= c * d;
        }
        fraction *= step;
        if (step - 1.0).abs() < 1e-12 {
            break;
        }
    }
    front * fraction
}

/// ln Γ(x) for x > 0 (Lanczos, g = 7).
fn ln_gamma(x: f64) -> f64 {
    const COEFFICIENTS: [f64; 8] = [
        676.520_368_121_885_1,
        -1_259.139_216_722_402_8,
        771.323_428_777_653_1,
        -176.615_029_162_140_6,
        12.507_343_278_686_905,
        -0.138_571_095_265_720_12,
        9.984_369_578_019_572e-6,
        1.505_632_735_149_311_6e-7,
    ];
    let x = x - 1.0;
    let t = x + 7.5;
    let series = COEFFICIENTS.iter().zip(1..).map(|(c, i)| c / (x + f64::from(i))).sum::<f64>();
    0.5 * std::f64::consts::TAU.ln() + (x + 0.5) * t.ln() - t + (0.999_999_999_999_809_9 + series).ln()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn beta_agrees_with_known_values() {
        // I_x(1, 1) = x; I_x(2, 2) = 3x² − 2x³; I_x(1/2, 1/2) = (2/π) asin √x.
        for x in [0.01_f64, 0.3, 0.5, 0.9] {
            assert!((beta_below(x, 1.0, 1.0) - x).abs() < 1e-12);
            assert!((beta_below(x, 2.0, 2.0) - (3.0 * x * x - 2.0 * x.powi(3))).abs() < 1e-12);
            let half = std::f64::consts::FRAC_2_PI * x.sqrt().asin();
            assert!((beta_below(x, 0.5, 0.5) - half).abs() < 1e-12);
        }
        assert!((beta_below(0.99, 9_901.0, 100.0) - 0.5).abs() < 0.05, "large parameters converge");
    }

    #[test]
    fn weights_add_up_to_one_and_lie_around_their_rank() {
        for (q, n) in [(0.5, 9), (0.99, 256), (0.5, 20_000)] {
            let statistic = Statistic::quantile(q, n);
            assert!((statistic.weight(0.0, 1.0) - 1.0).abs() < 1e-9);
            let below = statistic.weight(0.0, q);
            assert!((0.3..0.7).contains(&below), "{below} of the weight lies below {q} of {n}");
        }
    }

    #[test]
    fn the_median_of_symmetric_samples_is_their_middle() {
        let samples = [1.0, 2.0, 3.0, 4.0, 5.0];
        let median = Statistic::quantile(0.5, 5);
        let weighted = samples.iter().enumerate().map(|(i, x)| {
            let (from, to) = (i as f64 / 5.0, (i + 1) as f64 / 5.0);
            x * median.weight(from, to)
        });
        assert!((weighted.sum::<f64>() - 3.0).abs() < 1e-12);
    }
}
