//! The choice of tokens against the engine's own rules, in 64 bits.

use std::collections::BTreeSet;

use firstlight_cuda::arguments::{RowSampling, Sample};
use firstlight_cuda::launch::Launch;

use super::Checked;
use super::numbers::Random;
use crate::platform::{Buf, Kernels};

const GREEDY: RowSampling =
    RowSampling { temperature: 0.0, top_p: 1.0, min_p: 0.0, top_k: 0, seed: 0, position: 0, reserved: 0 };

pub fn check(kernels: &Kernels) -> Checked {
    let mut random = Random::new(7);
    // Ranks of one, two and three bytes.
    for (vocabulary, rows) in [(1, 24), (2, 24), (31, 24), (256, 24), (257, 24), (3001, 24), (70_001, 3)] {
        let mut logits = Vec::new();
        let mut sampling = Vec::new();
        for row in 0..rows {
            // Coarse values make ties.
            let coarse = row % 3 == 0;
            let value = |random: &mut Random| {
                let value = 3.0 * random.normal();
                if coarse { value.round() as f32 } else { value as f32 }
            };
            logits.extend((0..vocabulary).map(|_| value(&mut random)));
            sampling.push(random_sampling(row, vocabulary, &mut random));
        }
        run(kernels, vocabulary, &logits, &sampling, &NEARLY)?;
        let exact = exact_rows(vocabulary).into_iter().take(rows);
        let (logits, sampling): (Vec<_>, Vec<_>) = exact.unzip();
        run(kernels, vocabulary, &logits.concat(), &sampling, &EXACTLY)?;
    }
    Ok(0.0)
}

fn random_sampling(row: usize, vocabulary: usize, random: &mut Random) -> RowSampling {
    let (seed, position) = (random.bits(), random.between(0, 100_000) as u32);
    let temperature = random.one_of(&[0.3, 1.0, 2.5]);
    let base = RowSampling { temperature, seed, position, ..GREEDY };
    let top_k = random.one_of(&[1, 2, 5, 50, vocabulary as u32, 1_000_000]);
    let top_p = random.one_of(&[1e-6, 0.1, 0.5, 0.9, 0.999]);
    let min_p = random.one_of(&[0.001, 0.05, 0.5, 1.0]);
    match row % 8 {
        0 => GREEDY,
        1 => base,
        2 => RowSampling { top_k, ..base },
        3 => RowSampling { top_p, ..base },
        4 => RowSampling { min_p, ..base },
        5 => RowSampling { top_k, top_p, ..base },
        6 => RowSampling { top_k, top_p, min_p, ..base },
        _ => RowSampling { temperature: 1e-4, top_p, ..base },
    }
}

/// Rows on which rounding has no say: extremes, and odds that are all 1.
fn exact_rows(vocabulary: usize) -> Vec<(Vec<f32>, RowSampling)> {
    let all = |value: f32| vec![value; vocabulary];
    let with = |mut row: Vec<f32>, id: usize, value: f32| {
        row[id] = value;
        row
    };
    let (middle, top_3) = (vocabulary / 2, RowSampling { temperature: 0.7, top_k: 3, ..GREEDY });
    let flat = |seed| (all(1.0), RowSampling { temperature: 1.0, seed, ..GREEDY });
    let mut rows = vec![
        flat(1),
        flat(2),
        flat(3),
        (all(f32::NAN), top_3),
        (all(f32::NEG_INFINITY), top_3),
        (with(all(f32::NEG_INFINITY), 0, f32::NAN), top_3),
        (with(all(1.0), middle, f32::INFINITY), top_3),
        (with(all(f32::NAN), middle, -4.0), top_3),
        (with(all(-0.0), middle, 0.0), GREEDY),
    ];
    let half = RowSampling { temperature: 1.0, top_p: 0.5, ..GREEDY };
    rows.extend((0..6).map(|seed| (all(1.0), RowSampling { seed, ..half })));
    rows
}

/// By how much noise and cuts may be off: what 32-bit exponentials cannot tell apart, or nothing.
const NEARLY: [f64; 3] = [-2e-6, 0.0, 2e-6];
const EXACTLY: [f64; 1] = [0.0];

fn run(
    kernels: &Kernels,
    vocabulary: usize,
    logits: &[f32],
    sampling: &[RowSampling],
    shifts: &[f64],
) -> Result<(), String> {
    let rows = sampling.len();
    for seed in 0..3 {
        let stride = vocabulary + if seed == 2 { 7 } else { 0 };
        let logits_in = Buf::input(&apart(logits, vocabulary, stride), "logits", seed == 0);
        let sampling_in = Buf::input(sampling, "sampling", seed == 0);
        let tokens = Buf::<i32>::output(rows, "tokens");
        let arguments = Sample {
            logits: logits_in.device(),
            sampling: sampling_in.device(),
            tokens: tokens.device(),
            vocabulary: vocabulary as i32,
            stride: stride as i32,
        };
        kernels.launch(&Launch::sample(rows), &arguments, seed)?;
        for (row, (&got, logits)) in tokens.read().iter().zip(logits.chunks(vocabulary)).enumerate() {
            let allowed = choices(logits, &sampling[row], shifts);
            if !allowed.contains(&got) {
                let sampling = sampling[row];
                return Err(format!(
                    "row {row} of {vocabulary}: token {got}, not one of {allowed:?}; {sampling:?}"
                ));
            }
        }
    }
    Ok(())
}

/// Rows `stride` apart. Between them are logits that would be chosen, and nothing behind the last.
fn apart(logits: &[f32], vocabulary: usize, stride: usize) -> Vec<f32> {
    let mut rows = Vec::new();
    for row in logits.chunks(vocabulary) {
        rows.resize(rows.len().next_multiple_of(stride), f32::INFINITY);
        rows.extend_from_slice(row);
    }
    rows
}

/// What may be chosen.
fn choices(logits: &[f32], sampling: &RowSampling, shifts: &[f64]) -> BTreeSet<i32> {
    let mut allowed = BTreeSet::new();
    for &noise_shift in shifts {
        for &cut_shift in shifts {
            allowed.insert(choose(logits, sampling, noise_shift, cut_shift));
        }
    }
    allowed
}

fn choose(logits: &[f32], sampling: &RowSampling, noise_shift: f64, cut_shift: f64) -> i32 {
    let better = |a: &usize, b: &usize| {
        let key = |id: usize| if logits[id].is_nan() { f32::NEG_INFINITY } else { logits[id] + 0.0 };
        key(*b).total_cmp(&key(*a)).then(a.cmp(b))
    };
    let mut ids: Vec<usize> = (0..logits.len()).collect();
    ids.sort_by(better);
    let top = logits[ids[0]];
    if top.is_nan() || top == f32::NEG_INFINITY {
        return 0;
    }
    if sampling.temperature == 0.0 || !top.is_finite() {
        return ids[0] as i32;
    }
    let odds = |id: usize| {
        let odds = f64::from(logits[id] - top) / f64::from(sampling.temperature);
        if odds.is_nan() { 0.0 } else { odds.exp() }
    };
    if sampling.top_k == 0 && sampling.top_p >= 1.0 {
        ids.sort_unstable();
    } else {
        if sampling.top_k > 0 {
            ids.truncate(sampling.top_k as usize);
        }
        if sampling.top_p < 1.0 {
            let total: f64 = ids.iter().map(|&id| odds(id)).sum();
            let enough = (f64::from(sampling.top_p) + cut_shift) * total;
            let mut sum = 0.0;
            let kept = ids.iter().position(|&id| {
                sum += odds(id);
                sum >= enough
            });
            ids.truncate(kept.map_or(ids.len(), |last| last + 1));
        }
    }
    ids.retain(|&id| odds(id) >= f64::from(sampling.min_p) * (1.0 + cut_shift.min(0.0)));
    let total: f64 = ids.iter().map(|&id| odds(id)).sum();
    let target = (uniform(sampling.seed, sampling.position) + noise_shift).clamp(0.0, 1.0) * total;
    let mut sum = 0.0;
    let mut last = ids[0];
    for id in ids {
        sum += odds(id);
        if odds(id) > 0.0 {
            last = id;
        }
        if sum > target {
            return id as i32;
        }
    }
    last as i32
}

/// As engine-svc/src/sample/noise.rs.
fn uniform(seed: u64, position: u32) -> f64 {
    let mix = |mut x: u64| {
        x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        x ^ (x >> 31)
    };
    let position = u64::from(position).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (mix(mix(seed ^ 0xD1B5_4A32_D192_ED03).wrapping_add(position)) >> 11) as f64 / (1_u64 << 53) as f64
}
