//! All linears of a SmolLM2-135M step, by format and number of rows, against the ceilings.

use firstlight_kernels::linear::{PackedLinear, WeightFormat, Write};
use firstlight_kernels::pool::Pool;

use crate::ceilings::Ceilings;
use crate::stopwatch::median;

pub const LAYERS: usize = 30;
pub const VOCABULARY: usize = 49_152;

/// `[n, k]` of a layer's linears: q|k|v, output, gate|up, down.
pub const LAYER: [(usize, usize); 4] = [(960, 576), (576, 576), (3072, 576), (576, 1536)];
const HEAD: (usize, usize) = (VOCABULARY, 576);

pub const ROWS: [usize; 6] = [1, 4, 16, 64, 256, 512];

/// A matrix of made-up weights.
pub fn dummy(pool: &Pool, format: WeightFormat, shape: (usize, usize)) -> PackedLinear {
    PackedLinear::pack(pool, format, shape, None, dummy_row)
}

/// Row `index` of such a matrix.
pub fn dummy_row(index: usize, row: &mut [f32]) {
    for (k, weight) in row.iter_mut().enumerate() {
        *weight = ((index * 31 + k * 17) % 61) as f32 / 600.0 - 0.05;
    }
}

pub fn print(pool: &Pool, ceilings: &Ceilings, filter: &str) {
    let formats = [
        (WeightFormat::F32, ceilings.f32),
        (WeightFormat::Bf16, ceilings.tiles.max(ceilings.bf16).max(ceilings.f32)),
        (WeightFormat::Q8_0, ceilings.int8),
        (WeightFormat::Q4_0, ceilings.int8),
        (WeightFormat::Q4_1, ceilings.int8),
    ];
    for (format, arithmetic) in formats {
        let name = format!("linears {format:?}");
        if !name.contains(filter) {
            continue;
        }
        let layers: Vec<PackedLinear> =
            (0..LAYERS).flat_map(|_| LAYER).map(|shape| dummy(pool, format, shape)).collect();
        let head = dummy(pool, format, HEAD);
        let bytes: usize = layers.iter().chain([&head]).map(PackedLinear::bytes).sum();
        let weights: usize = layers.iter().chain([&head]).map(|l| l.inputs() * l.outputs()).sum();
        for rows in ROWS {
            let x = vec![0.25; rows * 1536];
            let mut y = vec![0.0; rows * VOCABULARY];
            let runs = if rows <= 16 { 11 } else { 3 };
            let mut all = |linears: &[PackedLinear]| {
                median(runs, || {
                    for linear in linears {
                        let (x, y) = (&x[..rows * linear.inputs()], &mut y[..rows * linear.outputs()]);
                        linear.forward(pool, x, y, Write::Set);
                    }
                })
            };
            let (body, head) = (all(&layers), all(std::slice::from_ref(&head)));
            let seconds = body + head;
            let compute = 2.0 * (weights * rows) as f64 / seconds / 1e9;
            let read = bytes as f64 / seconds / 1e9;
            println!(
                "{name} rows {rows:>3}: {:>7.2} ms (layers {:.2}, head {:.2}), \
                 {compute:.0} GOP/s = {:.0} % of arithmetic, {read:.1} GB/s = {:.0} % of read",
                seconds * 1e3,
                body * 1e3,
                head * 1e3,
                100.0 * compute / arithmetic,
                100.0 * read / ceilings.read,
            );
        }
    }
}
