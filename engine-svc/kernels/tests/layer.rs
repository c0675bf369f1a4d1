//! Norms, rotary embedding, activations and elementwise kernels against float64 references.

mod common;

use common::{Random, assert_close, assert_same_bits, pools};
use firstlight_kernels::activation::{gelu_erf, gelu_tanh, silu_mul};
use firstlight_kernels::elementwise::{add, argmax, gather, gather_add};
use firstlight_kernels::norm::Norm;
use firstlight_kernels::pool::Pool;
use firstlight_kernels::rows::Heads;
use proptest::prelude::*;

const EPS: f32 = 1e-5;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn norms_match_the_reference(rows in 1usize..40, width in 1usize..700, seed: u64) {
        let mut random = Random::new(seed);
        let (x, weight, bias) = (random.vec(rows * width), random.vec(width), random.vec(width));
        let (mut rms, mut layer) = (Vec::new(), Vec::new());
        for row in x.chunks_exact(width) {
            let mean = row.iter().map(|x| f64::from(*x)).sum::<f64>() / width as f64;
            let square = row.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>() / width as f64;
            let variance = row.iter().map(|x| (f64::from(*x) - mean).powi(2)).sum::<f64>() / width as f64;
            for (i, x) in row.iter().enumerate() {
                let (x, w, b) = (f64::from(*x), f64::from(weight[i]), f64::from(bias[i]));
                rms.push(x / (square + f64::from(EPS)).sqrt() * w);
                layer.push((x - mean) / (variance + f64::from(EPS)).sqrt() * w + b);
            }
        }
        for pool in pools(2) {
            let mut out = vec![f32::NAN; x.len()];
            Norm::rms(weight.clone(), EPS).forward(&pool, &x, &mut out);
            assert_close(&out, &rms, 1e-5, 1.0);
            // A narrow row can have a variance near eps, which magnifies rounding.
            Norm::layer(weight.clone(), Some(bias.clone()), EPS).forward(&pool, &x, &mut out);
            assert_close(&out, &layer, 1e-4, 1.0);
        }
    }

    #[test]
    fn activations_match_the_reference(rows in 1usize..20, features in 1usize..300, range in 0.1f32..30.0, seed: u64) {
        let mut random = Random::new(seed);
        let x: Vec<f32> = random.vec(rows * features * 2).iter().map(|x| x * range).collect();
        let silu: Vec<f64> = (0..rows * features)
            .map(|i| {
                let row = &x[i / features * 2 * features..];
                let (gate, up) = (f64::from(row[i % features]), f64::from(row[features + i % features]));
                gate / (1.0 + (-gate).exp()) * up
            })
            .collect();
        let tanh: Vec<f64> = x.iter().map(|x| {
            let x = f64::from(*x);
            0.5 * x * (1.0 + ((2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x.powi(3))).tanh())
        }).collect();
        let erf: Vec<f64> = x.iter().map(|x| gelu_by_quadrature(f64::from(*x))).collect();
        for pool in pools(2) {
            let mut out = vec![f32::NAN; rows * features];
            silu_mul(&pool, &x, features, &mut out);
            assert_close(&out, &silu, 1e-6, f64::from(range * range) + 1.0);
            let mut out = x.clone();
            gelu_tanh(&pool, &mut out, features);
            assert_close(&out, &tanh, 1e-6, f64::from(range) + 1.0);
            let mut out = x.clone();
            gelu_erf(&pool, &mut out, features);
            assert_close(&out, &erf, 1e-6, f64::from(range) + 1.0);
        }
    }
}

/// x · Φ(x) with Φ by Simpson's rule.
fn gelu_by_quadrature(x: f64) -> f64 {
    let end = x.abs().min(12.0);
    let steps = 400;
    let h = end / f64::from(steps);
    let density = |t: f64| (-t * t / 2.0).exp() / (2.0 * std::f64::consts::PI).sqrt();
    let area: f64 = (0..=steps)
        .map(|i| {
            let weight = if i == 0 || i == steps {
                1.0
            } else if i % 2 == 1 {
                4.0
            } else {
                2.0
            };
            weight * density(f64::from(i) * h)
        })
        .sum::<f64>()
        * h
        / 3.0;
    x * (0.5 + area.copysign(x))
}

#[test]
fn a_row_does_not_depend_on_the_rows_beside_it() {
    let width = 577;
    let mut random = Random::new(5);
    let (x, weight) = (random.vec(50 * width), random.vec(width));
    for pool in pools(3) {
        let mut all = vec![f32::NAN; x.len()];
        let norm = Norm::rms(weight.clone(), EPS);
        norm.forward(&pool, &x, &mut all);
        let mut gelu = x.clone();
        gelu_tanh(&pool, &mut gelu, width);
        for (index, row) in x.chunks_exact(width).enumerate() {
            let mut one = vec![f32::NAN; width];
            norm.forward(&pool, row, &mut one);
            assert_same_bits(&one, &all[index * width..][..width]);
            one.copy_from_slice(row);
            gelu_tanh(&pool, &mut one, width);
            assert_same_bits(&one, &gelu[index * width..][..width]);
        }
    }
}

#[test]
fn extreme_inputs_saturate_and_nan_passes_through() {
    for pool in pools(1) {
        let mut x = [f32::NAN, -f32::INFINITY, f32::INFINITY, -1e30, 1e30, -0.0, 1e-42];
        gelu_tanh(&pool, &mut x, 7);
        assert!(x[0].is_nan() && x[1].is_nan() | (x[1] == 0.0));
        assert_eq!((x[2], x[3], x[4], x[5]), (f32::INFINITY, 0.0, 1e30, 0.0));
        let mut out = [f32::NAN; 4];
        silu_mul(&pool, &[f32::NAN, -1000.0, 1000.0, 0.0, 1.0, 1.0, 1.0, f32::NAN], 4, &mut out);
        assert!(out[0].is_nan() && out[3].is_nan());
        assert_eq!((out[1], out[2]), (0.0, 1000.0));
    }
}

#[test]
fn heads_are_normalised_one_by_one() {
    let pool = Pool::new(2);
    let mut random = Random::new(1);
    let (x, weight) = (random.vec(4 * 53), random.vec(16));
    let mut got = x.clone();
    let norm = Norm::rms(weight, EPS);
    norm.forward_heads(&pool, &mut got, Heads { stride: 53, first: 2, count: 3, dim: 16 });
    for row in 0..4 {
        for head in 0..3 {
            let at = row * 53 + 2 + head * 16;
            let mut want = [0.0; 16];
            norm.forward(&pool, &x[at..at + 16], &mut want);
            assert_same_bits(&got[at..at + 16], &want);
        }
        assert_eq!(got[row * 53 + 52], x[row * 53 + 52]);
    }
}

#[test]
fn rows_are_gathered_and_added() {
    let pool = Pool::new(2);
    let table: Vec<f32> = (0..12).map(|x| x as f32).collect();
    let mut out = [f32::NAN; 6];
    gather(&pool, &table, 3, &[3, 0], &mut out);
    assert_eq!(out, [9.0, 10.0, 11.0, 0.0, 1.0, 2.0]);
    gather_add(&pool, &table, 3, &[0, 1], &mut out);
    assert_eq!(out, [9.0, 11.0, 13.0, 3.0, 5.0, 7.0]);
    let mut long = vec![1.0; 10_007];
    add(&pool, &mut long, &vec![0.5; 10_007]);
    assert!(long.iter().all(|x| *x == 1.5));
}

#[test]
fn argmax_takes_the_lowest_of_equals_and_never_nan() {
    let mut random = Random::new(3);
    for pool in pools(2) {
        let width = 1003;
        let mut logits = random.vec(5 * width);
        logits[77] = 2.0;
        logits[99] = 2.0;
        logits[width + 1002] = 3.0;
        logits[2 * width] = 4.0;
        logits[2 * width + 1] = f32::NAN;
        logits[3 * width..4 * width].fill(f32::NEG_INFINITY);
        logits[4 * width..].fill(f32::NAN);
        let mut out = [9; 5];
        argmax(&pool, &logits, width, &mut out);
        assert_eq!(out, [77, 1002, 0, 0, 0]);
    }
}
