//! Sequences in a paged pool: random block tables, poison wherever no token is.

use firstlight_cuda::arguments::Kv;
use firstlight_cuda::kv::{BLOCK_TOKENS, KvLayout};
use firstlight_cuda::source::{Module, Number};

use super::numbers::{Random, widen};
use crate::platform::Buf;

/// Layers of the pool; the kernels work on the last.
const LAYERS: usize = 2;
pub const LAST_LAYER: usize = LAYERS - 1;

pub struct Paged {
    number: Number,
    pub layout: KvLayout,
    pool: Buf<u16>,
    values: Vec<u16>,
    table: Vec<i32>,
    pub table_stride: usize,
    pub device_table: Buf<i32>,
}

impl Paged {
    /// Sequences of these lengths, with random keys and values.
    pub fn random(
        module: &Module,
        kv_heads: usize,
        lengths: &[usize],
        low: bool,
        random: &mut Random,
    ) -> Self {
        let (number, head_dim) = (module.number, module.head_dim);
        let layout = KvLayout { layers: LAYERS, kv_heads, head_dim };
        let needed: usize = lengths.iter().map(|len| len.div_ceil(BLOCK_TOKENS)).sum();
        let longest = lengths.iter().max().copied().unwrap_or_default();
        let table_stride = longest.div_ceil(BLOCK_TOKENS) + 2;
        let mut free: Vec<usize> = (0..needed + 3).collect();
        random.shuffle(&mut free);
        // Entries that must not be read point far outside the pool.
        let mut table = vec![0x7fff_0000; lengths.len() * table_stride];
        // 0xFFFF is a NaN in both formats.
        let mut values = vec![0xFFFF_u16; free.len() * layout.block_elements()];
        for (row, &len) in table.chunks_mut(table_stride).zip(lengths) {
            for position in 0..len {
                let place = position % BLOCK_TOKENS;
                if place == 0 {
                    row[position / BLOCK_TOKENS] = free.pop().expect("enough blocks") as i32;
                }
                let block = row[position / BLOCK_TOKENS] as usize * layout.block_elements();
                for head in 0..kv_heads {
                    for start in [layout.key_index(1, head, place), layout.value_index(1, head, place)] {
                        let numbers = random.normals(number, head_dim);
                        values[block + start..][..head_dim].copy_from_slice(&numbers);
                    }
                }
            }
        }
        let pool = Buf::input(&values, "KV pool", low);
        let device_table = Buf::input(&table, "block table", low);
        Self { number, layout, pool, values, table, table_stride, device_table }
    }

    pub fn kv(&self) -> Kv {
        self.layout.layer(self.pool.device(), LAST_LAYER)
    }

    fn block(&self, sequence: usize, position: usize) -> usize {
        let block = self.table[sequence * self.table_stride + position / BLOCK_TOKENS] as usize;
        block * self.layout.block_elements()
    }

    fn numbers(&self, from: usize) -> impl Iterator<Item = f64> {
        self.values[from..][..self.layout.head_dim].iter().map(|&bits| widen(self.number, bits))
    }

    /// What attention of `query` to the first `context` positions gives, in 64 bits: the output, and the same with
    /// every value positive, which bounds rounding errors.
    pub fn attend(
        &self,
        sequence: usize,
        head: usize,
        context: usize,
        query: &[f64],
    ) -> (Vec<f64>, Vec<f64>) {
        let dim = self.layout.head_dim;
        let place = |position: usize| position % BLOCK_TOKENS;
        let scores: Vec<f64> = (0..context)
            .map(|position| {
                let key = self.block(sequence, position) + self.layout.key_index(1, head, place(position));
                self.numbers(key).zip(query).map(|(k, q)| k * q).sum::<f64>() / (dim as f64).sqrt()
            })
            .collect();
        let top = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let sum: f64 = scores.iter().map(|score| (score - top).exp()).sum();
        let (mut out, mut bound) = (vec![0.0; dim], vec![0.0; dim]);
        for (position, score) in scores.iter().enumerate() {
            let weight = (score - top).exp() / sum;
            let value = self.block(sequence, position) + self.layout.value_index(1, head, place(position));
            for ((out, bound), v) in out.iter_mut().zip(&mut bound).zip(self.numbers(value)) {
                *out += weight * v;
                *bound += weight * v.abs();
            }
        }
        (out, bound)
    }
}
