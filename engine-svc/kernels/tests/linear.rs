//! Linears against a float64 reference, and the promise of batch invariance, for every format and
//! instruction set of this machine.

mod common;

use common::{Random, as_bf16, assert_close, assert_same_bits, pools};
use firstlight_kernels::activation::silu_mul;
use firstlight_kernels::elementwise::argmax;
use firstlight_kernels::linear::{GatedLinear, PackedLinear, WeightFormat, Write};
use firstlight_kernels::norm::Norm;
use firstlight_kernels::pool::Pool;
use proptest::prelude::*;

const FORMATS: [WeightFormat; 5] =
    [WeightFormat::F32, WeightFormat::Bf16, WeightFormat::Q8_0, WeightFormat::Q4_0, WeightFormat::Q4_1];

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

    /// The weights as the format holds them.
    fn held(&self, pool: &Pool, format: WeightFormat) -> Vec<f32> {
        let ids: Vec<u32> = (0..self.n as u32).collect();
        let mut w = vec![f32::NAN; self.n * self.k];
        self.pack(pool, format).gather(pool, &ids, &mut w);
        w
    }

    /// In float64, from weights and activations as the format holds them.
    fn reference(&self, pool: &Pool, format: WeightFormat) -> Vec<f64> {
        let w = self.held(pool, format);
        let x = match format {
            WeightFormat::F32 => self.x.clone(),
            WeightFormat::Bf16 if pool.isa().rounds_activations() => as_bf16(&self.x),
            WeightFormat::Bf16 => self.x.clone(),
            _ => self.x.chunks(self.k).flat_map(|row| row.chunks(32)).flat_map(as_int8).collect(),
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

/// A block of activations rounded to multiples of its largest magnitude / 127.
fn as_int8(block: &[f32]) -> Vec<f32> {
    let scale = block.iter().fold(0.0f32, |max, x| max.max(x.abs())) / 127.0;
    let inverse = if scale > f32::MIN_POSITIVE { 1.0 / scale } else { 0.0 };
    block.iter().map(|x| (x * inverse).round_ties_even() * scale).collect()
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
                assert_close(&case.run(&pool, format), &case.reference(&pool, format), 1e-6, k as f64 + 1.0);
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
    for (m, n, k) in [(700, 50, 650), (1100, 33, 650)] {
        let case = Case::random(m, n, k, true, 3);
        for pool in pools(2) {
            for format in FORMATS {
                let whole = case.run(&pool, format);
                let linear = case.pack(&pool, format);
                for row in [0, 301, m - 1] {
                    let mut alone = vec![f32::NAN; n];
                    linear.forward(&pool, &case.x[row * k..][..k], &mut alone, Write::Set);
                    assert_same_bits(&alone, &whole[row * n..][..n]);
                }
            }
        }
    }
}

#[test]
fn add_adds_what_set_writes() {
    for (m, n, k) in [(9, 100, 64), (70, 100, 1200)] {
        let case = Case::random(m, n, k, true, 11);
        for pool in pools(2) {
            for format in FORMATS {
                let set = case.run(&pool, format);
                let mut y = vec![2.5; m * n];
                case.pack(&pool, format).forward(&pool, &case.x, &mut y, Write::Add);
                let sum: Vec<f32> = set.iter().map(|y| 2.5 + y).collect();
                assert_same_bits(&y, &sum);
            }
        }
    }
}

#[test]
fn a_gated_linear_is_two_linears_and_their_activation_and_feeds_a_third() {
    let shapes = [(96, 5, 64), (101, 70, 64), (30, 1, 64), (1536, 300, 64), (96, 800, 64), (96, 90, 1200)];
    for (features, m, k) in shapes {
        let case = Case::random(m, 2 * features, k, true, 19);
        for pool in pools(2) {
            for format in FORMATS {
                let mut want = vec![f32::NAN; m * features];
                silu_mul(&pool, &case.run(&pool, format), features, &mut want);
                let shape = (features, case.k);
                let gated = GatedLinear::pack(&pool, format, shape, case.bias.as_deref(), |index, row| {
                    row.copy_from_slice(&case.w[index * case.k..][..case.k]);
                });
                let mut out = vec![f32::NAN; m * features];
                gated.forward(&pool, &case.x, &mut out);
                assert_same_bits(&out, &want);
                assert_eq!((gated.format(), gated.features()), (format, features));

                let norm = some_norm(case.k);
                let down = Case::random(m, case.k, features, true, 23).pack(&pool, format);
                let (mut normed, mut want) = (vec![f32::NAN; m * case.k], case.x.clone());
                norm.forward(&pool, &case.x, &mut normed);
                gated.forward(&pool, &normed, &mut out);
                down.forward(&pool, &out, &mut want, Write::Add);
                let mut residual = case.x.clone();
                gated.feed(&pool, &norm, &down, (&mut normed, &mut out), &mut residual);
                assert_same_bits(&residual, &want);
            }
        }
    }
}

fn some_norm(width: usize) -> Norm {
    let mut random = Random::new(29);
    Norm::layer(random.vec(width), Some(random.vec(width)), 1e-5)
}

#[test]
fn normalized_rows_are_multiplied_as_if_they_had_been_written() {
    for (m, k) in [(1, 64), (5, 300), (40, 577), (800, 576)] {
        let case = Case::random(m, 50, k, true, 31);
        let norm = some_norm(k);
        for pool in pools(2) {
            let mut normed = vec![f32::NAN; m * k];
            norm.forward(&pool, &case.x, &mut normed);
            for format in FORMATS {
                let linear = case.pack(&pool, format);
                let (mut want, mut got) = (vec![f32::NAN; m * 50], vec![f32::NAN; m * 50]);
                linear.forward(&pool, &normed, &mut want, Write::Set);
                linear.forward_normed(&pool, &norm, &case.x, &mut got, Write::Set);
                assert_same_bits(&got, &want);
            }
        }
    }
}

#[test]
fn the_largest_output_is_found_without_writing_any() {
    for (m, n, k) in [(1, 1, 3), (5, 101, 40), (70, 2000, 33), (300, 500, 96)] {
        let mut case = Case::random(m, n, k, true, 37);
        // Outputs that are equal in every row, and a row of NaN.
        let (head, tail) = case.w.split_at_mut(n / 2 * k);
        head[..(n / 3) * k].copy_from_slice(&tail[..(n / 3) * k]);
        let bias = case.bias.as_mut().unwrap();
        bias.copy_within(n / 2..n / 2 + n / 3, 0);
        case.x[(m - 1) * k] = f32::NAN;
        for pool in pools(3) {
            for format in FORMATS {
                let (mut want, mut got) = (vec![9; m], vec![9; m]);
                argmax(&pool, &case.run(&pool, format), n, &mut want);
                case.pack(&pool, format).argmax(&pool, &case.x, &mut got);
                assert_eq!(got, want, "{format:?} {}", pool.isa());
            }
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

#[test]
fn quantised_weights_are_within_half_a_step_of_their_block() {
    let case = Case::random(1, 100, 96, false, 17);
    let pool = Pool::new(2);
    for (format, steps) in [(WeightFormat::Q8_0, 127.0), (WeightFormat::Q4_0, 8.0), (WeightFormat::Q4_1, 7.5)]
    {
        let held = case.held(&pool, format);
        for (held, w) in held.chunks(32).zip(case.w.chunks(32)) {
            let largest = w.iter().fold(0.0f32, |max, w| max.max(w.abs()));
            // Scales are 16-bit, the far end of a symmetric range is clipped, and Q4_1 may clip outliers.
            let slack = if format == WeightFormat::Q8_0 { 0.55 } else { 2.0 };
            for (held, w) in held.iter().zip(w) {
                assert!((held - w).abs() <= slack * largest / steps, "{format:?}: {w} held as {held}");
            }
        }
    }
}

#[test]
fn blocks_of_a_file_keep_their_values() {
    // One row of each format, by the definition of its blocks: d, (m,) then 32 weights.
    let d = half::f16::from_f32(0.5).to_le_bytes();
    let m = half::f16::from_f32(-3.0).to_le_bytes();
    let nibbles: Vec<u8> = (0..16).map(|i| i | (15 - i) << 4).collect();
    let bytes: Vec<u8> = (0..32u8).map(|i| (i as i8 * 8 - 127) as u8).collect();
    let nibble = |k: usize| if k < 16 { k as f32 } else { (31 - k) as f32 };
    let rows: [(WeightFormat, Vec<u8>, Vec<f32>); 3] = [
        (
            WeightFormat::Q8_0,
            [&d[..], &bytes].concat(),
            (0..32).map(|k| 0.5 * (k as f32 * 8.0 - 127.0)).collect(),
        ),
        (WeightFormat::Q4_0, [&d[..], &nibbles].concat(), (0..32).map(|k| 0.5 * (nibble(k) - 8.0)).collect()),
        (
            WeightFormat::Q4_1,
            [&d[..], &m, &nibbles].concat(),
            (0..32).map(|k| 0.5 * nibble(k) - 3.0).collect(),
        ),
    ];
    for pool in pools(2) {
        for (format, encoded, values) in &rows {
            assert_eq!(format.row_bytes(32), Some(encoded.len()));
            let linear = PackedLinear::pack_blocks(&pool, *format, (50, 32), None, |_, row| {
                row.copy_from_slice(encoded)
            });
            assert_eq!(linear.format(), *format);
            let mut out = vec![f32::NAN; 32];
            linear.gather(&pool, &[49], &mut out);
            assert_eq!(&out, values);
            let gated = GatedLinear::pack_blocks(&pool, *format, (25, 32), None, |_, row| {
                row.copy_from_slice(encoded);
            });
            assert_eq!(gated.format(), *format);
            // A unit vector picks out each weight exactly.
            for k in 0..32 {
                let mut x = vec![0.0; 32];
                x[k] = 1.0;
                let mut y = vec![f32::NAN; 50];
                linear.forward(&pool, &x, &mut y, Write::Set);
                assert!(
                    y.iter().all(|y| (y - values[k]).abs() < 1e-4),
                    "{format:?} {k}: {} {}",
                    y[0],
                    values[k]
                );
                let mut out = vec![f32::NAN; 25];
                gated.forward(&pool, &x, &mut out);
                let want = values[k] * values[k] / (1.0 + (-values[k]).exp());
                assert!(out.iter().all(|out| (out - want).abs() < 1e-3), "{format:?} {k}: {} {want}", out[0]);
            }
        }
    }
}
