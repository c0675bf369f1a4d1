//! Noise by position: the same seed and position give the same number, whatever happened before.

/// A number in `0.0..1.0` that belongs to this seed and absolute position.
pub(super) fn uniform(seed: u64, position: usize) -> f64 {
    let bits = mix(mix(seed ^ SEED_TWEAK).wrapping_add((position as u64).wrapping_mul(GOLDEN_GAMMA)));
    (bits >> 11) as f64 / (1_u64 << 53) as f64
}

const GOLDEN_GAMMA: u64 = 0x9E37_79B9_7F4A_7C15;

/// Keeps seed 0 away from the finalizer's fixed point 0.
const SEED_TWEAK: u64 = 0xD1B5_4A32_D192_ED03;

/// The finalizer of SplitMix64 (Steele et al. 2014), a bijection.
fn mix(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ (x >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// χ² of counts in 100 equal cells; 99 degrees of freedom exceed 160 once in 10⁴.
    fn chi_square(samples: impl Iterator<Item = f64>) -> f64 {
        let mut cells = [0.0_f64; 100];
        let mut n = 0.0;
        for sample in samples {
            assert!((0.0..1.0).contains(&sample));
            cells[(sample * 100.0) as usize] += 1.0;
            n += 1.0;
        }
        cells.iter().map(|count| (count - n / 100.0).powi(2) / (n / 100.0)).sum()
    }

    #[test]
    fn noise_is_uniform_along_positions_and_along_seeds() {
        for fixed in [0, 1, 42, usize::MAX] {
            assert!(chi_square((0..100_000).map(|i| uniform(fixed as u64, i))) < 160.0);
            assert!(chi_square((0..100_000).map(|i| uniform(i, fixed))) < 160.0);
        }
    }

    #[test]
    fn neighbouring_positions_and_seeds_are_independent() {
        let wrapped_sum = |a: f64, b: f64| (a + b).fract();
        assert!(chi_square((0..100_000).map(|i| wrapped_sum(uniform(7, i), uniform(7, i + 1)))) < 160.0);
        let seeds = |i: u64| wrapped_sum(uniform(i, 3), uniform(i + 1, 3));
        assert!(chi_square((0..100_000).map(seeds)) < 160.0);
    }
}
