//! Paged attention against a float64 reference, and its promise of invariance.

mod common;

use common::{Random, as_bf16, assert_close, assert_same_bits, pools};
use firstlight_kernels::attention::{AttentionPlan, AttentionShape, Sequence};
use firstlight_kernels::kv::{BLOCK_TOKENS, KvLayout, KvPool, KvSlot, KvType};
use firstlight_kernels::pool::Pool;
use firstlight_kernels::rope::{Rope, RopePairing, inverse_frequencies};
use firstlight_kernels::rows::Rows;
use proptest::prelude::*;

#[derive(Clone, Copy, Debug)]
struct Dims {
    kv_heads: usize,
    group: usize,
    head_dim: usize,
    kv_type: KvType,
}

/// One sequence's queries, keys and values for every position.
struct Text {
    q: Vec<f32>,
    k: Vec<f32>,
    v: Vec<f32>,
    blocks: Vec<u32>,
}

/// Sequences in one pool, their blocks interleaved, every unused slot NaN.
struct World {
    dims: Dims,
    kv: KvPool,
    texts: Vec<Text>,
}

const LAYER: usize = 1;

impl World {
    fn new(pool: &Pool, dims: Dims, lens: &[usize], seed: u64) -> World {
        let mut random = Random::new(seed);
        let total: usize = lens.iter().map(|len| len.div_ceil(BLOCK_TOKENS)).sum();
        let layout = KvLayout {
            layers: 2,
            kv_heads: dims.kv_heads,
            head_dim: dims.head_dim,
            blocks: total + 1,
            kv_type: dims.kv_type,
        };
        let mut kv = KvPool::new(layout);
        (0..=total as u32).for_each(|block| kv.poison_block(block));
        let mut free: Vec<u32> = (0..total as u32).collect();
        let width = dims.kv_heads * dims.head_dim;
        let mut texts = Vec::new();
        for &len in lens {
            let blocks: Vec<u32> =
                (0..len.div_ceil(BLOCK_TOKENS)).map(|_| free.swap_remove(random.below(free.len()))).collect();
            let text = Text {
                q: random.vec(len * width * dims.group),
                k: random.vec(len * width),
                v: random.vec(len * width),
                blocks,
            };
            let slots: Vec<KvSlot> = (0..len).map(|position| KvSlot::at(&text.blocks, position)).collect();
            kv.append(pool, LAYER, &slots, (Rows::new(&text.k, width), None), Rows::new(&text.v, width));
            texts.push(text);
        }
        World { dims, kv, texts }
    }

    fn q_width(&self) -> usize {
        self.dims.kv_heads * self.dims.group * self.dims.head_dim
    }

    fn scale(&self) -> f32 {
        1.0 / (self.dims.head_dim as f32).sqrt()
    }

    /// Attention of the given (text, first position, rows), outputs one after the other.
    fn attend(&self, pool: &Pool, chunks: &[(usize, usize, usize)]) -> Vec<Vec<f32>> {
        let width = self.q_width();
        let mut q = Vec::new();
        let mut sequences = Vec::new();
        for &(text, first_position, rows) in chunks {
            let text = &self.texts[text];
            sequences.push(Sequence {
                first_row: q.len() / width,
                rows,
                first_position,
                block_table: &text.blocks,
            });
            q.extend_from_slice(&text.q[first_position * width..][..rows * width]);
        }
        let shape = AttentionShape { heads: self.dims.kv_heads * self.dims.group, scale: self.scale() };
        let mut out = vec![f32::NAN; q.len()];
        let plan = AttentionPlan::new(pool, self.kv.layout(), shape, &sequences);
        plan.run(pool, &self.kv, LAYER, (Rows::new(&q, width), None), &mut out);
        sequences.iter().map(|s| out[s.first_row * width..][..s.rows * width].to_vec()).collect()
    }

    /// Whether a plan for such a pool rounds queries and probabilities.
    fn rounds(&self, pool: &Pool) -> bool {
        let shape = AttentionShape { heads: self.dims.kv_heads * self.dims.group, scale: self.scale() };
        AttentionPlan::new(pool, self.kv.layout(), shape, &[]).rounds()
    }

    /// Fails unless attention of these rows is that of float64, from queries, keys and values as they are held.
    #[track_caller]
    fn assert_reference(&self, pool: &Pool, got: &[f32], text: usize, first_position: usize, rows: usize) {
        let rounds = self.rounds(pool);
        let want = self.reference(text, first_position, rows, rounds);
        assert_close(got, &want, if rounds { ROUNDED_TOLERANCE } else { TOLERANCE }, 1.0);
    }

    fn reference(&self, text: usize, first_position: usize, rows: usize, rounds: bool) -> Vec<f64> {
        let Dims { group, head_dim, kv_heads, kv_type } = self.dims;
        let text = &self.texts[text];
        let held = |values: &[f32]| match kv_type {
            KvType::F32 => values.to_vec(),
            KvType::Bf16 => as_bf16(values),
        };
        let q = if rounds { as_bf16(&text.q) } else { text.q.clone() };
        let (k, v) = (held(&text.k), held(&text.v));
        let mut out = Vec::new();
        for position in first_position..first_position + rows {
            for head in 0..kv_heads * group {
                let q = &q[position * self.q_width() + head * head_dim..][..head_dim];
                let at = |token: usize| token * kv_heads * head_dim + head / group * head_dim;
                let scores: Vec<f64> = (0..=position)
                    .map(|token| {
                        let k = &k[at(token)..][..head_dim];
                        let dot: f64 = q.iter().zip(k).map(|(q, k)| f64::from(*q) * f64::from(*k)).sum();
                        dot * f64::from(self.scale())
                    })
                    .collect();
                let max = scores.iter().fold(f64::NEG_INFINITY, |max, score| max.max(*score));
                let weights: Vec<f64> = scores.iter().map(|score| (score - max).exp()).collect();
                let sum: f64 = weights.iter().sum();
                out.extend((0..head_dim).map(|i| {
                    weights.iter().enumerate().map(|(token, w)| w * f64::from(v[at(token) + i])).sum::<f64>()
                        / sum
                }));
            }
        }
        out
    }
}

const TOLERANCE: f64 = 2e-6;

/// With probabilities of eight bits.
const ROUNDED_TOLERANCE: f64 = 1e-3;

fn dims() -> impl Strategy<Value = Dims> {
    (
        1usize..4,
        1usize..5,
        prop_oneof![Just(8usize), Just(24), Just(32), Just(64), Just(96), Just(128), Just(200), Just(256)],
        any::<bool>(),
    )
        .prop_map(|(kv_heads, group, head_dim, bf16)| Dims {
            kv_heads,
            group,
            head_dim,
            kv_type: if bf16 { KvType::Bf16 } else { KvType::F32 },
        })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn decode_and_prefill_match_the_reference(dims in dims(), a in 1usize..300, b in 1usize..70, seed: u64) {
        for pool in pools(2) {
            let world = World::new(&pool, dims, &[a, b], seed);
            let out = world.attend(&pool, &[(0, a - 1, 1), (1, 0, b)]);
            world.assert_reference(&pool, &out[0], 0, a - 1, 1);
            world.assert_reference(&pool, &out[1], 1, 0, b);
        }
    }
}

#[test]
fn a_query_has_the_same_bits_however_its_prefill_is_chunked_and_whoever_is_beside_it() {
    for kv_type in [KvType::F32, KvType::Bf16] {
        let dims = Dims { kv_heads: 2, group: 3, head_dim: 64, kv_type };
        for (one, three) in pools(1).into_iter().zip(pools(3)) {
            let world = World::new(&one, dims, &[333, 40, 700], 21);
            let whole = world.attend(&one, &[(0, 0, 333)]).remove(0);
            let width = world.q_width();
            for chunk in [1, 7, 16, 100, 128, 200] {
                for pool in [&one, &three] {
                    for first in (0..333).step_by(chunk) {
                        let rows = chunk.min(333 - first);
                        let out = world.attend(pool, &[(1, 39, 1), (0, first, rows), (2, 699, 1)]);
                        assert_same_bits(&out[1], &whole[first * width..][..rows * width]);
                    }
                }
            }
        }
    }
}

#[test]
fn queries_and_keys_are_rotated_by_the_angles_of_their_positions() {
    const DIM: usize = 64;
    let rope = Rope::new(RopePairing::Halves, &inverse_frequencies(10_000.0, DIM), 100);
    for pool in pools(2) {
        let dims = Dims { kv_heads: 1, group: 1, head_dim: DIM, kv_type: KvType::F32 };
        let mut world = World::new(&pool, dims, &[90], 12);
        let (slots, positions): (Vec<_>, Vec<_>) =
            (0..90).map(|position| (KvSlot::at(&world.texts[0].blocks, position), position as u32)).unzip();
        // Rotated by their position, equal queries and keys differ by their distance only.
        let alike = world.texts[0].q[..DIM].repeat(90);
        let rows = Rows::new(&alike, DIM);
        let values = Rows::new(&world.texts[0].v, DIM);
        world.kv.append(&pool, LAYER, &slots, (rows, Some((&rope, &positions))), values);
        let sequence =
            [Sequence { first_row: 0, rows: 90, first_position: 0, block_table: &world.texts[0].blocks }];
        let shape = AttentionShape { heads: 1, scale: world.scale() };
        let mut out = vec![f32::NAN; 90 * DIM];
        let plan = AttentionPlan::new(&pool, world.kv.layout(), shape, &sequence);
        plan.run(&pool, &world.kv, LAYER, (rows, Some(&rope)), &mut out);

        let frequencies = inverse_frequencies(10_000.0, DIM);
        let score = |distance: usize| -> f64 {
            let pair = |i: usize| {
                let (a, b) = (f64::from(alike[i]), f64::from(alike[i + DIM / 2]));
                (a * a + b * b) * (distance as f64 * frequencies[i]).cos()
            };
            (0..DIM / 2).map(pair).sum::<f64>() * f64::from(world.scale())
        };
        for (position, out) in out.chunks_exact(DIM).enumerate() {
            let weights: Vec<f64> = (0..=position).map(|token| score(position - token).exp()).collect();
            let weighed = |i: usize| -> f64 {
                let value = |token: usize| f64::from(world.texts[0].v[token * DIM + i]);
                weights.iter().enumerate().map(|(token, weight)| weight * value(token)).sum()
            };
            let sum: f64 = weights.iter().sum();
            let want: Vec<f64> = (0..DIM).map(|i| weighed(i) / sum).collect();
            assert_close(out, &want, 1e-5, 1.0);
        }
    }
}

#[test]
fn one_long_decode_is_split_over_threads_without_changing_its_bits() {
    let dims = Dims { kv_heads: 1, group: 2, head_dim: 64, kv_type: KvType::Bf16 };
    for (one, four) in pools(1).into_iter().zip(pools(4)) {
        let world = World::new(&one, dims, &[5000], 2);
        let alone = world.attend(&one, &[(0, 4999, 1)]);
        assert_same_bits(&alone[0], &world.attend(&four, &[(0, 4999, 1)])[0]);
        world.assert_reference(&one, &alone[0], 0, 4999, 1);
    }
}

#[test]
fn a_later_token_does_not_reach_an_earlier_query_even_as_nan_or_infinity() {
    for kv_type in [KvType::F32, KvType::Bf16] {
        let dims = Dims { kv_heads: 1, group: 1, head_dim: 16, kv_type };
        for pool in pools(2) {
            let mut world = World::new(&pool, dims, &[50], 4);
            let before = world.attend(&pool, &[(0, 0, 50)]).remove(0);
            let slot = [KvSlot::at(&world.texts[0].blocks, 20)];
            for (k, v) in [(f32::NAN, f32::NAN), (f32::INFINITY, f32::INFINITY)] {
                world.kv.append(
                    &pool,
                    LAYER,
                    &slot,
                    (Rows::new(&[k; 16], 16), None),
                    Rows::new(&[v; 16], 16),
                );
                let after = world.attend(&pool, &[(0, 0, 50)]).remove(0);
                assert_same_bits(&after[..20 * 16], &before[..20 * 16]);
                assert!(after[20 * 16..].iter().all(|x| x.is_nan()), "{kv_type:?} {k}");
            }
        }
    }
}

#[test]
fn a_copied_block_reads_the_same_and_is_independent() {
    let dims = Dims { kv_heads: 2, group: 1, head_dim: 24, kv_type: KvType::Bf16 };
    let pool = Pool::new(2);
    let mut world = World::new(&pool, dims, &[30], 8);
    let before = world.attend(&pool, &[(0, 29, 1)]).remove(0);
    let spare = world.kv.layout().blocks as u32 - 1;
    let original = std::mem::replace(&mut world.texts[0].blocks[0], spare);
    world.kv.copy_block(original, spare);
    world.kv.poison_block(original);
    assert_same_bits(&world.attend(&pool, &[(0, 29, 1)])[0], &before);
}

#[test]
fn what_a_block_table_holds_beyond_the_rows_is_not_looked_at() {
    let dims = Dims { kv_heads: 1, group: 2, head_dim: 64, kv_type: KvType::Bf16 };
    let pool = Pool::new(2);
    let mut world = World::new(&pool, dims, &[200], 6);
    let before = world.attend(&pool, &[(0, 0, 150)]).remove(0);
    world.texts[0].blocks.truncate(10);
    world.texts[0].blocks.push(u32::MAX);
    assert_same_bits(&world.attend(&pool, &[(0, 0, 150)])[0], &before);
}
