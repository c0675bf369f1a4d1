//! Rotary frequencies and their scalings.

use firstlight_kernels::rope::inverse_frequencies;

use super::config::MAX_HEAD_DIM;

/// How a model's rotary frequencies were stretched for a longer context.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum RopeScaling {
    None,
    /// All divided by a factor (position interpolation, Chen et al. 2023).
    Linear {
        factor: f64,
    },
    /// Low frequencies divided by the factor, high ones kept, a ramp between (Llama 3.1).
    Llama3 {
        factor: f64,
        low: f64,
        high: f64,
        original_context: f64,
    },
}

impl RopeScaling {
    /// Radians per position of each pair in `rotary_dim` elements, at most [`MAX_HEAD_DIM`]: a wider head is
    /// refused when the configuration is checked.
    pub(super) fn frequencies(self, base: f64, rotary_dim: usize) -> Vec<f64> {
        let mut frequencies = inverse_frequencies(base, rotary_dim.min(MAX_HEAD_DIM));
        for frequency in &mut frequencies {
            *frequency = self.scale(*frequency);
        }
        frequencies
    }

    fn scale(self, frequency: f64) -> f64 {
        match self {
            Self::None => frequency,
            Self::Linear { factor } => frequency / factor,
            Self::Llama3 { factor, low, high, original_context } => {
                let turns = original_context * frequency / std::f64::consts::TAU;
                let kept = ((turns - low) / (high - low)).clamp(0.0, 1.0);
                kept * frequency + (1.0 - kept) * frequency / factor
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LLAMA_3_1: RopeScaling =
        RopeScaling::Llama3 { factor: 8.0, low: 1.0, high: 4.0, original_context: 8192.0 };

    #[test]
    fn llama3_keeps_short_waves_and_stretches_long_ones() {
        let plain = RopeScaling::None.frequencies(500_000.0, 128);
        let scaled = LLAMA_3_1.frequencies(500_000.0, 128);
        assert_eq!(scaled[0], plain[0]);
        assert_eq!(scaled[63], plain[63] / 8.0);
        let ratios: Vec<f64> = plain.iter().zip(&scaled).map(|(p, s)| p / s).collect();
        assert!(ratios.is_sorted() && ratios.iter().any(|r| *r > 1.0 && *r < 8.0));
    }

    #[test]
    fn linear_divides_every_frequency() {
        let scaled = RopeScaling::Linear { factor: 4.0 }.frequencies(10_000.0, 8);
        let plain = RopeScaling::None.frequencies(10_000.0, 8);
        assert!(plain.iter().zip(&scaled).all(|(p, s)| *s == p / 4.0));
    }
}
