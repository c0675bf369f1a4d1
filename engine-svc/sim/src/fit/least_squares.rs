//! Weighted least squares with no coefficient below zero, from sums that can be scaled down to forget.

/// Pull towards the prior, as a share of one observation: settles only what the observations leave open.
const PULL: f64 = 1e-3;

/// The sums that determine the coefficients: Σ w²xxᵀ, Σ w²xy and Σ w.
#[derive(Debug, Clone)]
pub(super) struct Normal<const N: usize> {
    xx: [[f64; N]; N],
    xy: [f64; N],
    weight: f64,
}

impl<const N: usize> Default for Normal<N> {
    fn default() -> Self {
        Self { xx: [[0.0; N]; N], xy: [0.0; N], weight: 0.0 }
    }
}

impl<const N: usize> Normal<N> {
    /// An observation `y` at `x`, whose error counts `w` times.
    pub fn add(&mut self, x: [f64; N], y: f64, w: f64) {
        for i in 0..N {
            for j in 0..N {
                self.xx[i][j] += w * w * x[i] * x[j];
            }
            self.xy[i] += w * w * x[i] * y;
        }
        self.weight += 1.0;
    }

    pub fn scale(&mut self, factor: f64) {
        self.xx.iter_mut().flatten().chain(&mut self.xy).for_each(|sum| *sum *= factor);
        self.weight *= factor;
    }

    /// Observations, as they count.
    pub fn weight(&self) -> f64 {
        self.weight
    }

    /// The coefficients, none below zero, that leave the least error; near `prior` where that is open. `None` without
    /// an observation.
    pub fn solve(&self, prior: [f64; N]) -> Option<[f64; N]> {
        if self.weight <= 0.0 {
            return None;
        }
        let (mut a, mut b) = (self.xx, self.xy);
        for i in 0..N {
            // Coefficients are pulled in units of what they contribute to an observation.
            let pull = PULL * self.xx[i][i] / self.weight;
            a[i][i] += pull;
            b[i] += pull * prior[i];
        }
        // So few coefficients that every choice of those at zero can be tried: the best one that stays above is exact.
        let subsets = 1_u32..1 << N;
        let solved = subsets.filter_map(|chosen| {
            let beta = solve_subset(&a, &b, chosen)?;
            let above = beta.iter().all(|beta| *beta >= 0.0);
            above.then(|| (objective(&a, &b, &beta), beta))
        });
        solved.min_by(|x, y| x.0.total_cmp(&y.0)).map(|(_, beta)| beta)
    }
}

/// βᵀAβ − 2bᵀβ: the squared error but for a constant.
fn objective<const N: usize>(a: &[[f64; N]; N], b: &[f64; N], beta: &[f64; N]) -> f64 {
    let row = |i: usize| -> f64 { (0..N).map(|j| a[i][j] * beta[j]).sum() };
    (0..N).map(|i| beta[i] * (row(i) - 2.0 * b[i])).sum()
}

/// Solves Aβ = b over the coefficients in `chosen` (a bit each), the others 0; `None` where that is singular.
fn solve_subset<const N: usize>(a: &[[f64; N]; N], b: &[f64; N], chosen: u32) -> Option<[f64; N]> {
    let (mut a, mut b) = (*a, *b);
    for i in (0..N).filter(|i| chosen & (1 << i) == 0) {
        a[i] = [0.0; N];
        a.iter_mut().for_each(|row| row[i] = 0.0);
        (a[i][i], b[i]) = (1.0, 0.0);
    }
    // Gaussian elimination; the matrix is positive definite, so the diagonal serves as pivot.
    for k in 0..N {
        let pivot = a[k];
        if pivot[k] <= f64::MIN_POSITIVE {
            return None;
        }
        for i in k + 1..N {
            let factor = a[i][k] / pivot[k];
            a[i].iter_mut().zip(pivot).skip(k).for_each(|(x, above)| *x -= factor * above);
            b[i] -= factor * b[k];
        }
    }
    for k in (0..N).rev() {
        let known: f64 = (k + 1..N).map(|j| a[k][j] * b[j]).sum();
        b[k] = (b[k] - known) / a[k][k];
    }
    b.iter().all(|beta| beta.is_finite()).then_some(b)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn coefficients_are_found_again() {
        let mut sums = Normal::<3>::default();
        for i in 0..50 {
            let (x1, x2) = (f64::from(i), f64::from(i * i % 17));
            sums.add([1.0, x1, x2], 3.0 + 2.0 * x1 + 0.5 * x2, 1.0);
        }
        let found = sums.solve([0.0; 3]).unwrap();
        for (found, is) in found.iter().zip([3.0, 2.0, 0.5]) {
            assert!((found - is).abs() < 5e-3 * is, "{found} is not {is}");
        }
    }

    #[test]
    fn no_coefficient_is_below_zero() {
        let mut sums = Normal::<2>::default();
        for i in 1..20 {
            sums.add([1.0, f64::from(i)], 10.0 - 0.1 * f64::from(i), 1.0);
        }
        let [base, slope] = sums.solve([0.0; 2]).unwrap();
        assert_eq!(slope, 0.0);
        assert!((8.5..9.5).contains(&base), "{base}");
    }

    #[test]
    fn what_the_observations_leave_open_is_the_priors() {
        let mut sums = Normal::<2>::default();
        for _ in 0..100 {
            sums.add([1.0, 4.0], 20.0, 1.0);
        }
        let [base, slope] = sums.solve([8.0, 3.0]).unwrap();
        assert!((base + 4.0 * slope - 20.0).abs() < 0.01, "{base} + 4 · {slope}");
        assert!((base - 8.0).abs() < 0.1 && (slope - 3.0).abs() < 0.1, "{base}, {slope}");
    }

    #[test]
    fn a_feature_that_never_varies_from_zero_costs_nothing() {
        let mut sums = Normal::<2>::default();
        sums.add([1.0, 0.0], 5.0, 1.0);
        let [base, never] = sums.solve([0.0, 7.0]).unwrap();
        assert!((base - 5.0).abs() < 0.01);
        assert_eq!(never, 0.0);
    }
}
