//! Rotation and the way into the pool, against 64-bit rotation; nothing else in the pool may change.

use std::f64::consts::TAU;

use firstlight_cuda::arguments::{KvAppendRope, Pairing};
use firstlight_cuda::kv::{BLOCK_TOKENS, KvLayout};
use firstlight_cuda::launch::Launch;
use firstlight_cuda::source::Number;

use super::Checked;
use super::numbers::{Random, Worst, narrow, roundoff, widen};
use super::paged::LAST_LAYER;
use crate::platform::{Buf, Kernels};

const BLOCKS: usize = 5;
/// Where padding rows write.
const SCRATCH: usize = BLOCKS - 1;
const POSITIONS: usize = 40;

struct Case {
    heads: usize,
    kv_heads: usize,
    pairing: Pairing,
    /// Rotated pairs.
    pairs: usize,
    rows: usize,
    padding: usize,
}

pub fn check(kernels: &Kernels) -> Checked {
    let half = kernels.module().head_dim / 2;
    let mut random = Random::new(3);
    let mut worst = Worst::default();
    let case = |heads, kv_heads, pairing, pairs, rows, padding| Case {
        heads,
        kv_heads,
        pairing,
        pairs,
        rows,
        padding,
    };
    for case in [
        case(4, 4, Pairing::None, 0, 7, 1),
        case(3, 3, Pairing::Halves, half, 5, 3),
        case(6, 2, Pairing::Halves, half / 2, 1, 0),
        case(9, 3, Pairing::Interleaved, half, 17, 2),
        case(1, 1, Pairing::Interleaved, half - 6, 3, 0),
    ] {
        run(kernels, &case, &mut random, &mut worst)?;
    }
    Ok(worst.part())
}

fn run(kernels: &Kernels, case: &Case, random: &mut Random, worst: &mut Worst) -> Result<(), String> {
    let (number, dim) = (kernels.module().number, kernels.module().head_dim);
    let Case { heads, kv_heads, rows, padding, pairs, .. } = *case;
    let layout = KvLayout { layers: 2, kv_heads, head_dim: dim };
    let width = (heads + 2 * kv_heads) * dim;
    let all_rows = rows + padding;
    let before = random.normals(number, all_rows * width);
    let mut places: Vec<i32> = (0..(SCRATCH * BLOCK_TOKENS) as i32).collect();
    random.shuffle(&mut places);
    let slots: Vec<i32> = (0..all_rows)
        .map(|row| if row < rows { places[row] } else { (SCRATCH * BLOCK_TOKENS) as i32 })
        .collect();
    let positions: Vec<i32> = (0..all_rows).map(|_| random.between(0, POSITIONS - 1) as i32).collect();
    let turns: Vec<f64> = (0..POSITIONS * pairs.max(1)).map(|_| random.uniform() * TAU).collect();
    let angles: Vec<f32> = turns
        .chunks(pairs.max(1))
        .flat_map(|row| row.iter().map(|a| a.cos()).chain(row.iter().map(|a| a.sin())))
        .map(|value| value as f32)
        .take(POSITIONS * 2 * pairs)
        .collect();
    let pool_before = random.normals(number, BLOCKS * layout.block_elements());

    for seed in 0..3 {
        let qkv = Buf::in_out(&before, "qkv");
        let pool = Buf::in_out(&pool_before, "KV pool");
        let slots_in = Buf::input(&slots, "slots", seed == 0);
        let positions_in = Buf::input(&positions, "positions", seed == 0);
        let angles_in = Buf::input(&angles, "angles", seed == 0);
        let arguments = KvAppendRope {
            qkv: qkv.device(),
            kv: layout.layer(pool.device(), LAST_LAYER),
            slots: slots_in.device(),
            positions: positions_in.device(),
            angles: angles_in.device(),
            heads: heads as i32,
            pairs: pairs as i32,
            pairing: case.pairing,
            reserved: 0,
        };
        kernels.launch(&Launch::kv_append_rope(all_rows), &arguments, seed)?;

        let (qkv, pool) = (qkv.read(), pool.read());
        let mut pool_want = pool_before.clone();
        for row in 0..all_rows {
            let head = |index: usize| row * width + index * dim..row * width + (index + 1) * dim;
            let turns = &turns[positions[row] as usize * pairs..][..pairs];
            for index in 0..heads {
                let want = rotated(number, &before[head(index)], case.pairing, turns);
                compare(number, &qkv[head(index)], &want, worst, || format!("row {row}, query {index}"))?;
            }
            if qkv[head(heads).start..(row + 1) * width] != before[head(heads).start..(row + 1) * width] {
                return Err(format!("row {row}: keys or values changed where they came from"));
            }
            if row >= rows {
                continue;
            }
            let (block, place) = (slots[row] as usize / BLOCK_TOKENS, slots[row] as usize % BLOCK_TOKENS);
            for kv_head in 0..kv_heads {
                let key = block * layout.block_elements() + layout.key_index(1, kv_head, place);
                let want = rotated(number, &before[head(heads + kv_head)], case.pairing, turns);
                compare(number, &pool[key..][..dim], &want, worst, || format!("row {row}, key {kv_head}"))?;
                pool_want[key..][..dim].copy_from_slice(&pool[key..][..dim]);
                let value = block * layout.block_elements() + layout.value_index(1, kv_head, place);
                pool_want[value..][..dim].copy_from_slice(&before[head(heads + kv_heads + kv_head)]);
            }
        }
        let live = ..SCRATCH * layout.block_elements();
        if pool[live] != pool_want[live] {
            return Err("a place in the pool holds what belongs elsewhere".into());
        }
    }
    Ok(())
}

fn rotated(number: Number, head: &[u16], pairing: Pairing, turns: &[f64]) -> Vec<f64> {
    let mut head: Vec<f64> = head.iter().map(|&bits| widen(number, bits)).collect();
    for (i, turn) in turns.iter().enumerate() {
        let (a, b) = match pairing {
            Pairing::None => continue,
            Pairing::Halves => (i, i + turns.len()),
            Pairing::Interleaved => (2 * i, 2 * i + 1),
        };
        let (x, y) = (head[a], head[b]);
        (head[a], head[b]) = (x * turn.cos() - y * turn.sin(), y * turn.cos() + x * turn.sin());
    }
    head
}

fn compare(
    number: Number,
    got: &[u16],
    want: &[f64],
    worst: &mut Worst,
    place: impl Fn() -> String,
) -> Result<(), String> {
    for (d, (&bits, &want)) in got.iter().zip(want).enumerate() {
        let exact = bits == narrow(number, want);
        let allowed = roundoff(number) * want.abs() + 1e-5;
        if !exact {
            worst.compare(widen(number, bits), want, allowed, || format!("{}, element {d}", place()))?;
        }
    }
    Ok(())
}
