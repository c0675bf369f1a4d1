//! A feed-forward block far wider than the caches (Llama 3 8B's), by rows, against the ceilings.

use firstlight_kernels::linear::{GatedLinear, WeightFormat};
use firstlight_kernels::norm::Norm;
use firstlight_kernels::pool::Pool;

use crate::ceilings::Ceilings;
use crate::linears::{dummy, dummy_row};
use crate::stopwatch::median;

const HIDDEN: usize = 4096;
const FEATURES: usize = 14_336;
const ROWS: [usize; 4] = [1, 64, 128, 512];

pub fn print(pool: &Pool, ceilings: &Ceilings, filter: &str) {
    const NAME: &str = "wide feed-forward Bf16";
    if !NAME.contains(filter) {
        return;
    }
    let arithmetic = ceilings.tiles.max(ceilings.bf16).max(ceilings.f32);
    let gate_up = GatedLinear::pack(pool, WeightFormat::Bf16, (FEATURES, HIDDEN), None, dummy_row);
    let down = dummy(pool, WeightFormat::Bf16, (HIDDEN, FEATURES));
    let norm = Norm::rms(vec![1.0; HIDDEN], 1e-5);
    let bytes = gate_up.bytes() + down.bytes();
    for rows in ROWS {
        let (mut residual, mut normed) = (vec![0.1; rows * HIDDEN], vec![0.0; rows * HIDDEN]);
        let mut activated = vec![0.0; rows * FEATURES];
        let seconds = median(5, || {
            gate_up.feed(pool, &norm, &down, (&mut normed, &mut activated), &mut residual);
        });
        let compute = 2.0 * (3 * HIDDEN * FEATURES * rows) as f64 / seconds / 1e9;
        let read = bytes as f64 / seconds / 1e9;
        println!(
            "{NAME} rows {rows:>3}: {:>7.2} ms, {compute:.0} GOP/s = {:.0} % of arithmetic, \
             {read:.1} GB/s = {:.0} % of read",
            seconds * 1e3,
            100.0 * compute / arithmetic,
            100.0 * read / ceilings.read,
        );
    }
}
