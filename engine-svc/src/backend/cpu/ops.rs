//! The operations of the model on rows in memory.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};

use firstlight_kernels::attention::AttentionShape;
use firstlight_kernels::buffer::Buffer;
use firstlight_kernels::kv::{BLOCK_TOKENS, KvLayout, KvPool};
use firstlight_kernels::linear::Write;
use firstlight_kernels::norm::Norm;
use firstlight_kernels::pool::Pool;
use firstlight_kernels::rope::{Rope, RopePairing};
use firstlight_kernels::rows::{Heads, Rows};
use firstlight_kernels::{activation, elementwise};

use super::linear::{Linear, Packing};
use super::step::Step;
use crate::backend::Chunk;
use crate::backend::options::CpuOptions;
use crate::model::ops::{Ops, Role, feed_gated_in_parts};
use crate::weights::config::Norm as NormKind;
use crate::weights::{Matrix, Weight};

/// The cores, the KV pool, and how weights are held.
pub struct CpuOps {
    pool: Pool,
    kv: KvPool,
    /// Positions that the KV pool will hold.
    positions: usize,
    attention: AttentionShape,
    packing: Packing,
    weight_bytes: BTreeMap<&'static str, usize>,
    /// The largest logit of each row that wants it, where the last forward found that alone.
    largest: Option<Vec<u32>>,
}

impl CpuOps {
    /// Without KV blocks until [`CpuOps::allocate_kv`], so that a model that is refused costs no memory.
    pub(super) fn new(pool: Pool, heads: usize, layout: KvLayout, options: &CpuOptions) -> Self {
        // A second thread pool spinning beside ours would cost many times what it adds.
        tch::set_num_threads(1);
        let scale = 1.0 / (layout.head_dim as f32).sqrt();
        Self {
            packing: Packing::new(options, pool.isa()),
            attention: AttentionShape { heads, scale },
            kv: KvPool::new(KvLayout { blocks: 0, ..layout }),
            positions: options.kv_blocks.saturating_mul(BLOCK_TOKENS),
            weight_bytes: BTreeMap::new(),
            largest: None,
            pool,
        }
    }

    pub(super) fn allocate_kv(&mut self, blocks: usize) {
        self.kv = KvPool::new(KvLayout { blocks, ..*self.kv.layout() });
    }

    pub(super) fn pool(&self) -> &Pool {
        &self.pool
    }

    pub(super) fn kv_layout(&self) -> &KvLayout {
        self.kv.layout()
    }

    pub(super) fn attention_shape(&self) -> AttentionShape {
        self.attention
    }

    pub(super) fn weight_bytes(&self) -> u64 {
        self.weight_bytes.values().sum::<usize>() as u64
    }

    /// The formats of the weights, the one of most bytes first.
    pub(super) fn dtype(&self) -> String {
        let mut formats: Vec<_> = self.weight_bytes.iter().collect();
        formats.sort_by_key(|(_, bytes)| Reverse(**bytes));
        let names: Vec<&str> = formats.into_iter().map(|(name, _)| *name).collect();
        names.join("+")
    }

    pub(super) fn copy_block(&mut self, from: u32, to: u32) {
        self.kv.copy_block(from, to);
    }

    pub(super) fn describe(&self) -> String {
        let linears = if self.packing.torch { ", linears by libtorch" } else { "" };
        format!("cpu ({}{linears})", self.pool.isa())
    }

    /// A token for each chunk that asks, from its row of `logits`, unless the forward found it already.
    pub(super) fn sample(&mut self, chunks: &[Chunk<'_>], logits: &Activations) -> Vec<Option<u32>> {
        let asking: Vec<_> = chunks.iter().filter_map(|chunk| Some((chunk.sample?, chunk.end()))).collect();
        let mut chosen = self.largest.take().unwrap_or_else(|| {
            let mut chosen = vec![0; asking.len()];
            elementwise::argmax(&self.pool, logits.as_slice(), logits.width, &mut chosen);
            chosen
        });
        let noisy: Vec<usize> = (0..asking.len()).filter(|&row| !asking[row].0.is_greedy()).collect();
        let drawn: Vec<AtomicU32> = noisy.iter().map(|_| AtomicU32::new(0)).collect();
        self.pool.share(noisy.len(), |place| {
            let row = noisy[place];
            let (sampling, position) = asking[row];
            drawn[place].store(sampling.choose(logits.row(row), position), Ordering::Relaxed);
        });
        for (&row, drawn) in noisy.iter().zip(&drawn) {
            chosen[row] = drawn.load(Ordering::Relaxed);
        }
        let mut chosen = chosen.into_iter();
        chunks.iter().map(|chunk| chunk.sample.and_then(|_| chosen.next())).collect()
    }

    fn write(&self, weights: &Linear, x: &Activations, y: &mut Activations, write: Write) {
        y.set_rows(x.rows);
        weights.forward(&self.pool, x.as_slice(), y.as_mut_slice(), write);
    }
}

impl Ops for CpuOps {
    type Buffer = Activations;
    type Linear = Linear;
    type Norm = Norm;
    type Rope = Rope;
    type Step<'a> = Step<'a>;

    fn linear(&mut self, weight: Weight, parts: &[Matrix<'_>], bias: Option<&[f32]>) -> Linear {
        let linear = self.packing.load(&self.pool, weight, parts, bias);
        *self.weight_bytes.entry(linear.format_name()).or_default() += linear.bytes();
        linear
    }

    fn norm(&mut self, kind: NormKind, scale: Vec<f32>, bias: Option<Vec<f32>>, eps: f32) -> Norm {
        match kind {
            NormKind::Rms => Norm::rms(scale, eps),
            NormKind::Layer => Norm::layer(scale, bias, eps),
        }
    }

    fn rope(&mut self, pairing: RopePairing, inverse_frequencies: &[f64], context: usize) -> Rope {
        Rope::new(pairing, inverse_frequencies, context.min(self.positions))
    }

    fn buffer(&mut self, _role: Role, width: usize) -> Activations {
        Activations { data: Buffer::zeroed(0), width, rows: 0 }
    }

    fn embed(
        &mut self,
        tokens: &Linear,
        positions: Option<&Linear>,
        step: &Step<'_>,
        scratch: &mut Activations,
        out: &mut Activations,
    ) {
        out.set_rows(step.tokens.len());
        tokens.gather(&self.pool, &step.tokens, out.as_mut_slice());
        if let Some(positions) = positions {
            scratch.set_rows(step.positions.len());
            positions.gather(&self.pool, &step.positions, scratch.as_mut_slice());
            elementwise::add(&self.pool, out.as_mut_slice(), scratch.as_slice());
        }
    }

    fn normalize(&mut self, norm: &Norm, x: &mut Activations, out: &mut Activations) {
        out.set_rows(x.rows);
        norm.forward(&self.pool, x.as_slice(), out.as_mut_slice());
    }

    fn normalize_selected(
        &mut self,
        norm: &Norm,
        step: &Step<'_>,
        x: &mut Activations,
        scratch: &mut Activations,
        out: &mut Activations,
    ) {
        scratch.set_rows(step.logit_rows.len());
        let width = x.width;
        elementwise::gather(&self.pool, x.as_slice(), width, &step.logit_rows, scratch.as_mut_slice());
        self.normalize(norm, scratch, out);
    }

    fn normalize_heads(&mut self, norm: &Norm, heads: Heads, x: &mut Activations) {
        norm.forward_heads(&self.pool, x.as_mut_slice(), heads);
    }

    fn multiply(&mut self, weights: &Linear, x: &Activations, y: &mut Activations) {
        self.write(weights, x, y, Write::Set);
    }

    fn logits(&mut self, weights: &Linear, x: &Activations, step: &Step<'_>, y: &mut Activations) {
        self.largest = None;
        if let (Linear::Packed(weights), true) = (weights, step.is_greedy) {
            let mut largest = vec![0; x.rows];
            weights.argmax(&self.pool, x.as_slice(), &mut largest);
            self.largest = Some(largest);
        } else {
            self.multiply(weights, x, y);
        }
    }

    fn normalize_multiply(
        &mut self,
        norm: &Norm,
        weights: &Linear,
        x: &mut Activations,
        normed: &mut Activations,
        y: &mut Activations,
    ) {
        if let Linear::Packed(weights) = weights {
            y.set_rows(x.rows);
            weights.forward_normed(&self.pool, norm, x.as_slice(), y.as_mut_slice(), Write::Set);
        } else {
            self.normalize(norm, x, normed);
            self.multiply(weights, normed, y);
        }
    }

    fn feed_gated(
        &mut self,
        norm: &Norm,
        (gate_up, down): (&Linear, &Linear),
        x: &mut Activations,
        [normed, gated, activated]: [&mut Activations; 3],
    ) {
        if let (Linear::Gated(gate_up), Linear::Packed(down)) = (gate_up, down) {
            normed.set_rows(x.rows);
            activated.set_rows(x.rows);
            let between = (normed.as_mut_slice(), activated.as_mut_slice());
            gate_up.feed(&self.pool, norm, down, between, x.as_mut_slice());
        } else {
            feed_gated_in_parts(self, norm, (gate_up, down), x, [normed, gated, activated]);
        }
    }

    fn multiply_add(&mut self, weights: &Linear, x: &Activations, y: &mut Activations) {
        self.write(weights, x, y, Write::Add);
    }

    fn attend(
        &mut self,
        layer: usize,
        rope: Option<&Rope>,
        step: &Step<'_>,
        qkv: &mut Activations,
        out: &mut Activations,
    ) {
        let layout = self.kv.layout();
        let (q, kv) = (self.attention.heads * layout.head_dim, layout.kv_heads * layout.head_dim);
        let columns = |from, to| Rows::columns(qkv.as_slice(), qkv.width, from..to);
        let keys = (columns(q, q + kv), rope.map(|rope| (rope, &step.positions[..])));
        self.kv.append(&self.pool, layer, &step.slots, keys, columns(q + kv, q + 2 * kv));
        out.set_rows(qkv.rows);
        step.attention.run(&self.pool, &self.kv, layer, (columns(0, q), rope), out.as_mut_slice());
    }

    fn silu_mul(&mut self, gate_up: &Activations, out: &mut Activations) {
        out.set_rows(gate_up.rows);
        let width = out.width;
        activation::silu_mul(&self.pool, gate_up.as_slice(), width, out.as_mut_slice());
    }

    fn gelu_tanh(&mut self, x: &mut Activations) {
        let width = x.width;
        activation::gelu_tanh(&self.pool, x.as_mut_slice(), width);
    }

    fn gelu_erf(&mut self, x: &mut Activations) {
        let width = x.width;
        activation::gelu_erf(&self.pool, x.as_mut_slice(), width);
    }
}

/// Rows of activations; the memory grows to the largest forward and stays.
pub struct Activations {
    data: Buffer<f32>,
    width: usize,
    rows: usize,
}

impl Activations {
    pub(super) fn as_slice(&self) -> &[f32] {
        &self.data[..self.rows * self.width]
    }

    fn as_mut_slice(&mut self) -> &mut [f32] {
        &mut self.data[..self.rows * self.width]
    }

    fn row(&self, row: usize) -> &[f32] {
        &self.as_slice()[row * self.width..][..self.width]
    }

    fn set_rows(&mut self, rows: usize) {
        self.data.reserve_zeroed(rows * self.width);
        self.rows = rows;
    }
}
