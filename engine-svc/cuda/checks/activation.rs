//! Activations against 64-bit ones.

use firstlight_cuda::arguments::Activation;
use firstlight_cuda::launch::Launch;

use super::Checked;
use super::numbers::{Random, Worst, narrow, roundoff, widen};
use crate::platform::{Buf, Kernels};

pub fn check(kernels: &Kernels) -> Checked {
    let number = kernels.module().number;
    let mut random = Random::new(5);
    let mut worst = Worst::default();
    for (rows, width) in [(1, 8), (3, 64), (2, 1536), (5, 24), (130, 8)] {
        let spread = |random: &mut Random, count: usize| -> Vec<u16> {
            (0..count).map(|_| narrow(number, 4.0 * random.normal())).collect()
        };
        let gate_up = spread(&mut random, rows * 2 * width);
        let values = spread(&mut random, rows * width);
        for seed in 0..3 {
            let input = Buf::input(&gate_up, "gate and up", seed == 0);
            let out = Buf::<u16>::output(rows * width, "out");
            let mut arguments = Activation {
                input: input.device(),
                out: out.device(),
                rows: rows as i64,
                width: width as i32,
                reserved: 0,
            };
            kernels.launch(&Launch::silu_mul(rows, width), &arguments, seed)?;
            for (i, &bits) in out.read().iter().enumerate() {
                let (row, column) = (i / width, i % width);
                let at = |column: usize| widen(number, gate_up[row * 2 * width + column]);
                let (gate, up) = (at(column), at(width + column));
                let want = gate / (1.0 + (-gate).exp()) * up;
                let place = || format!("silu_mul, row {row}, column {column} of {width}");
                worst.compare(widen(number, bits), want, roundoff(number) * want.abs() + 1e-5, place)?;
            }
            for (launch, exact) in [
                (Launch::gelu_tanh(rows, width), gelu_tanh as fn(f64) -> f64),
                (Launch::gelu_erf(rows, width), gelu_erf),
            ] {
                let in_place = Buf::in_out(&values, "in and out");
                arguments.input = in_place.device();
                arguments.out = in_place.device();
                kernels.launch(&launch, &arguments, seed)?;
                for (i, (&bits, &before)) in in_place.read().iter().zip(&values).enumerate() {
                    let want = exact(widen(number, before));
                    let place = || format!("{}, element {i}", launch.kernel);
                    worst.compare(widen(number, bits), want, roundoff(number) * want.abs() + 1e-5, place)?;
                }
            }
        }
    }
    Ok(worst.part())
}

fn gelu_tanh(x: f64) -> f64 {
    let inner = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044_715 * x.powi(3));
    0.5 * x * (1.0 + inner.tanh())
}

fn gelu_erf(x: f64) -> f64 {
    0.5 * x * (1.0 + erf(x / std::f64::consts::SQRT_2))
}

/// The error function by its Maclaurin series; beyond ±4, where that loses digits, it is ±1 to 2e-8.
fn erf(x: f64) -> f64 {
    if x.abs() > 4.0 {
        return x.signum();
    }
    let (mut term, mut sum) = (x, x);
    for n in 1..200 {
        term *= -x * x / f64::from(n);
        sum += term / f64::from(2 * n + 1);
    }
    sum * 2.0 / std::f64::consts::PI.sqrt()
}
