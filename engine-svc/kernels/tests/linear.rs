//! Linears against a float64 reference, and the promise of batch invariance, for every format and
//! instruction set of this machine.

mod common;

use common::{Random, as_bf16, assert_close, assert_same_bits, pools};
use firstlight_kernels::isa::Isa;
use firstlight_kernels::linear::{PackedLinear, WeightFormat, Write};
use firstlight_kernels::pool::Pool;
use proptest::prelude::*;

const FORMATS: [WeightFormat; 2] = [WeightFormat::F32, WeightFormat::Bf16];

struct Case {
    m: usize,
    n: usize,
    k: usize,
    x: Vec<f32>,
    w: Vec<f32>,
    bias: Option<Vec<f32>>,
}

impl Case {
    fn random(m: usize, n: usize, k: usize, with_bias: bool, seed: u64) -> Case {
        let mut random = Random::new(seed);
        let bias = with_bias.then(|| random.vec(n));
        Case { m, n, k, x: random.vec(m * k), w: random.vec(n * k), bias }
    }

    fn pack(&self, pool: &Pool, format: WeightFormat) -> PackedLinear {
        PackedLinear::pack(pool, format, (self.n, self.k), self.bias.as_deref(), |index, row| {
            row.copy_from_slice(&self.w[index * self.k..][..self.k]);
        })
    }

    fn run(&self, pool: &Pool, format: WeightFormat) -> Vec<f32> {
        let mut y = vec![f32::NAN; self.m * self.n];
        self.pack(pool, format).forward(pool, &self.x, &mut y, Write::Set);
        y
    }

    /// In float64, from operands as the format holds them.
    fn reference(&self, isa: Isa, format: WeightFormat) -> Vec<f64> {
        let (x, w) = match format {
            WeightFormat::F32 => (self.x.clone(), self.w.clone()),
            WeightFormat::Bf16 if isa.to_string() == "avx512-bf16" => (as_bf16(&self.x), as_bf16(&self.w)),
            WeightFormat::Bf16 => (self.x.clone(), as_bf16(&self.w)),
        };
        let dot = |row: usize, column: usize| -> f64 {
            let x = &x[row * self.k..][..self.k];
            let w = &w[column * self.k..][..self.k];
            x.iter().zip(w).map(|(x, w)| f64::from(*x) * f64::from(*w)).sum()
        };
        let bias = |column: usize| self.bias.as_ref().map_or(0.0, |bias| f64::from(bias[column]));
        (0..self.m * self.n).map(|i| dot(i / self.n, i % self.n) + bias(i % self.n)).collect()
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn any_shape_matches_the_reference(
        m in 1usize..40, n in 1usize..200, k in 1usize..300, with_bias: bool, seed: u64,
    ) {
        let case = Case::random(m, n, k, with_bias, seed);
        for pool in pools(2) {
            for format in FORMATS {
                assert_close(&case.run(&pool, format), &case.reference(pool.isa(), format), 1e-6, k as f64 + 1.0);
            }
        }
    }
}

#[test]
fn a_row_has_the_same_bits_in_any_batch_and_on_any_number_of_threads() {
    let case = Case::random(67, 211, 321, true, 7);
    for format in FORMATS {
        for (one, three) in pools(1).into_iter().zip(pools(3)) {
            let whole = case.run(&three, format);
            let linear = case.pack(&one, format);
            for rows in [1, 2, 3, 5, 8, 13, 16, 64] {
                for first in [0, 1, 3] {
                    let mut y = vec![f32::NAN; rows * case.n];
                    let x = &case.x[first * case.k..][..rows * case.k];
                    linear.forward(&one, x, &mut y, Write::Set);
                    assert_same_bits(&y, &whole[first * case.n..][..rows * case.n]);
                }
            }
        }
    }
}

#[test]
fn a_long_batch_is_the_same_as_its_rows() {
    let case = Case::random(1100, 50, 33, false, 3);
    for pool in pools(2) {
        for format in FORMATS {
            let whole = case.run(&pool, format);
            let linear = case.pack(&pool, format);
            let mut last = vec![f32::NAN; case.n];
            linear.forward(&pool, &case.x[1099 * case.k..], &mut last, Write::Set);
            assert_same_bits(&last, &whole[1099 * case.n..]);
        }
    }
}

#[test]
fn add_adds_what_set_writes() {
    let case = Case::random(9, 100, 64, true, 11);
    for pool in pools(2) {
        for format in FORMATS {
            let set = case.run(&pool, format);
            let mut y = vec![2.5; case.m * case.n];
            case.pack(&pool, format).forward(&pool, &case.x, &mut y, Write::Add);
            let sum: Vec<f32> = set.iter().map(|y| 2.5 + y).collect();
            assert_same_bits(&y, &sum);
        }
    }
}

#[test]
fn nan_passes_through_and_stays_in_its_row() {
    let mut case = Case::random(10, 60, 70, false, 5);
    case.x[3 * case.k + 17] = f32::NAN;
    for pool in pools(2) {
        for format in FORMATS {
            let y = case.run(&pool, format);
            for (row, y) in y.chunks_exact(case.n).enumerate() {
                assert!(y.iter().all(|y| y.is_nan() == (row == 3)), "row {row}");
            }
        }
    }
}

#[test]
fn denormal_inputs_give_results_near_zero() {
    let mut case = Case::random(3, 50, 40, false, 9);
    case.x.fill(f32::MIN_POSITIVE / 4.0);
    for pool in pools(1) {
        for format in FORMATS {
            assert!(case.run(&pool, format).iter().all(|y| y.abs() < 1e-36));
        }
    }
}

#[test]
fn gather_returns_the_weights_as_held() {
    let case = Case::random(1, 101, 37, false, 13);
    for pool in pools(2) {
        for (format, held) in [(WeightFormat::F32, case.w.clone()), (WeightFormat::Bf16, as_bf16(&case.w))] {
            let mut out = vec![f32::NAN; 3 * case.k];
            case.pack(&pool, format).gather(&pool, &[100, 0, 47], &mut out);
            for (out, id) in out.chunks_exact(case.k).zip([100, 0, 47]) {
                assert_eq!(out, &held[id * case.k..][..case.k]);
            }
        }
    }
}
