//! Norms against 64-bit norms.

use firstlight_cuda::arguments::{DevicePtr, HeadNorm, Norm};
use firstlight_cuda::launch::Launch;

use super::Checked;
use super::numbers::{Random, Worst, roundoff, widen};
use crate::platform::{Buf, Kernels};

const EPSILON: f32 = 1e-5;

struct Case {
    layer: bool,
    width: usize,
    rows: usize,
    delta: bool,
    /// Values so small that epsilon counts.
    small: bool,
    bias: bool,
    /// Only some rows, in another order.
    gathered: bool,
}

pub fn check(kernels: &Kernels) -> Checked {
    let mut random = Random::new(4);
    let mut worst = Worst::default();
    for layer in [false, true] {
        for (width, rows, delta, bias, gathered) in [
            (4, 1, true, true, false),
            (64, 5, false, false, false),
            (768, 3, true, true, false),
            (1028, 2, true, false, false),
            (2304, 4, true, true, true),
        ] {
            let case = Case { layer, width, rows, delta, small: width == 64, bias: bias && layer, gathered };
            run(kernels, &case, &mut random, &mut worst)?;
        }
    }
    for (dim, heads, first) in [(64, 5, 0), (80, 1, 80), (128, 9, 256)] {
        head_norm(kernels, (dim, heads, first), &mut random, &mut worst)?;
    }
    Ok(worst.part())
}

fn run(kernels: &Kernels, case: &Case, random: &mut Random, worst: &mut Worst) -> Result<(), String> {
    let number = kernels.module().number;
    let Case { width, rows, .. } = *case;
    // A large mean shows a variance that was taken as a difference.
    let offset = if case.layer && !case.small { 30.0 } else { 0.0 };
    let size = if case.small { 3e-3 } else { 1.0 };
    let x_before: Vec<f32> = (0..rows * width).map(|_| (size * random.normal() + offset) as f32).collect();
    let delta = random.normals(number, rows * width);
    let scale: Vec<f32> = (0..width).map(|_| (1.0 + 0.2 * random.normal()) as f32).collect();
    let bias: Vec<f32> = (0..width).map(|_| (0.2 * random.normal()) as f32).collect();
    let mut order: Vec<i32> = (0..rows as i32).collect();
    if case.gathered {
        random.shuffle(&mut order);
        order.pop();
    }
    for seed in 0..3 {
        let low = seed == 0;
        let x = Buf::in_out(&x_before, "x");
        let delta_in = Buf::input(&delta, "delta", low);
        let scale_in = Buf::input(&scale, "scale", low);
        let bias_in = Buf::input(&bias, "bias", low);
        let rows_in = Buf::input(&order, "rows", low);
        let out = Buf::<u16>::output(order.len() * width, "out");
        let arguments = Norm {
            x: x.device(),
            delta: if case.delta { delta_in.device() } else { DevicePtr::NULL },
            scale: scale_in.device(),
            bias: if case.bias { bias_in.device() } else { DevicePtr::NULL },
            rows: if case.gathered { rows_in.device() } else { DevicePtr::NULL },
            out: out.device(),
            width: width as i32,
            epsilon: EPSILON,
        };
        let launch = if case.layer { Launch::layer_norm(order.len()) } else { Launch::rms_norm(order.len()) };
        kernels.launch(&launch, &arguments, seed)?;
        let x = x.read();
        for (got, &row) in out.read().chunks(width).zip(&order) {
            let place = row as usize * width;
            let sums: Vec<f64> = (place..place + width)
                .map(|i| f64::from(x_before[i]) + if case.delta { widen(number, delta[i]) } else { 0.0 })
                .collect();
            let mean = if case.layer { sums.iter().sum::<f64>() / width as f64 } else { 0.0 };
            let variance = sums.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / width as f64;
            let factor = 1.0 / (variance + f64::from(EPSILON)).sqrt();
            for i in 0..width {
                let b = if case.bias { f64::from(bias[i]) } else { 0.0 };
                let want = (sums[i] - mean) * factor * f64::from(scale[i]) + b;
                // The residual stream itself has 24 bits.
                let allowed = roundoff(number) * want.abs() + (1e-5 + offset * 1e-6) * factor.max(1.0);
                let at = || format!("width {width}, row {row}, element {i}");
                worst.compare(widen(number, got[i]), want, allowed, at)?;
                worst.compare(f64::from(x[place + i]), sums[i], 1e-6 * (sums[i].abs() + 1.0), at)?;
            }
        }
        for row in (0..rows as i32).filter(|row| !order.contains(row)) {
            let range = row as usize * width..(row as usize + 1) * width;
            if x[range.clone()] != x_before[range] {
                return Err(format!("row {row} was not asked for and changed"));
            }
        }
    }
    Ok(())
}

fn head_norm(
    kernels: &Kernels,
    (dim, heads, first): (usize, usize, usize),
    random: &mut Random,
    worst: &mut Worst,
) -> Result<(), String> {
    let number = kernels.module().number;
    let (rows, stride) = (3, first + heads * dim + 24);
    let before = random.normals(number, rows * stride);
    let scale: Vec<f32> = (0..dim).map(|_| (1.0 + 0.2 * random.normal()) as f32).collect();
    for seed in 0..3 {
        let values = Buf::in_out(&before, "rows");
        let scale_in = Buf::input(&scale, "scale", seed == 0);
        let arguments = HeadNorm {
            rows: values.device(),
            scale: scale_in.device(),
            stride: stride as i64,
            first: first as i32,
            heads: heads as i32,
            dim: dim as i32,
            epsilon: EPSILON,
        };
        kernels.launch(&Launch::head_norm(rows, heads), &arguments, seed)?;
        for (row, (got, before)) in values.read().chunks(stride).zip(before.chunks(stride)).enumerate() {
            let heads_end = first + heads * dim;
            if got[..first] != before[..first] || got[heads_end..] != before[heads_end..] {
                return Err(format!("row {row}: elements beside the heads changed"));
            }
            for (head, (got, before)) in
                got[first..heads_end].chunks(dim).zip(before[first..heads_end].chunks(dim)).enumerate()
            {
                let before: Vec<f64> = before.iter().map(|&bits| widen(number, bits)).collect();
                let mean_square = before.iter().map(|v| v * v).sum::<f64>() / dim as f64;
                let factor = 1.0 / (mean_square + f64::from(EPSILON)).sqrt();
                for i in 0..dim {
                    let want = before[i] * factor * f64::from(scale[i]);
                    let allowed = roundoff(number) * want.abs() + 1e-5;
                    worst.compare(widen(number, got[i]), want, allowed, || {
                        format!("row {row}, head {head}, {i}")
                    })?;
                }
            }
        }
    }
    Ok(())
}
