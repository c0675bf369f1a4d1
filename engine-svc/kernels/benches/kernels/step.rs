//! A whole SmolLM2-135M forward, kernel by kernel: how much of it is linears, the activation between gate, up and down
//! included.

use firstlight_kernels::attention::{AttentionPlan, AttentionShape, Sequence};
use firstlight_kernels::kv::{BLOCK_TOKENS, KvLayout, KvPool, KvSlot, KvType};
use firstlight_kernels::linear::{GatedLinear, PackedLinear, WeightFormat, Write};
use firstlight_kernels::norm::rms_norm;
use firstlight_kernels::pool::Pool;
use firstlight_kernels::rope::{Rope, RopePairing, inverse_frequencies};
use firstlight_kernels::rows::{Heads, Rows};

use crate::linears::{LAYER, LAYERS, VOCABULARY, dummy, dummy_row};
use crate::stopwatch::median;

const HIDDEN: usize = 576;
const HEADS: usize = 9;
const KV_HEADS: usize = 3;
const HEAD_DIM: usize = 64;
const QKV: usize = (HEADS + 2 * KV_HEADS) * HEAD_DIM;
const FEATURES: usize = 1536;

/// Sequences, rows of each, and the position of the last row.
const CASES: [(usize, usize, usize); 8] = [
    (1, 1, 127),
    (1, 1, 1023),
    (1, 1, 8191),
    (16, 1, 255),
    (64, 1, 63),
    (64, 1, 511),
    (1, 128, 127),
    (1, 512, 511),
];

pub fn print(pool: &Pool, filter: &str) {
    for format in [WeightFormat::Bf16, WeightFormat::Q8_0, WeightFormat::Q4_1] {
        let name = format!("step {format:?}");
        if name.contains(filter) {
            print_format(pool, format, &name);
        }
    }
}

fn print_format(pool: &Pool, format: WeightFormat, name: &str) {
    let layers: Vec<Layer> = (0..LAYERS).map(|_| Layer::dummy(pool, format)).collect();
    let head = dummy(pool, format, (VOCABULARY, HIDDEN));
    let rope = Rope::new(RopePairing::Interleaved, &inverse_frequencies(1e5, HEAD_DIM), 8192);
    for (sequences, rows, last) in CASES {
        let blocks = (last + 1).div_ceil(BLOCK_TOKENS);
        let mut kv = KvPool::new(KvLayout {
            layers: LAYERS,
            kv_heads: KV_HEADS,
            head_dim: HEAD_DIM,
            blocks: sequences * blocks,
            kv_type: KvType::Bf16,
        });
        let tables: Vec<Vec<u32>> = (0..sequences)
            .map(|sequence| (0..blocks).map(|block| (block * sequences + sequence) as u32).collect())
            .collect();
        let sequences: Vec<Sequence> = tables
            .iter()
            .enumerate()
            .map(|(index, table)| Sequence {
                first_row: index * rows,
                rows,
                first_position: last + 1 - rows,
                block_table: table,
            })
            .collect();
        let mut step = Step::new(pool, &layers, &head, &rope, &sequences);
        let runs = if step.rows <= 16 { 21 } else { 7 };
        let whole = median(runs, || step.run(&mut kv, true, true));
        let linears = median(runs, || step.run(&mut kv, true, false));
        let attention = whole - median(runs, || step.run_without_attention(&mut kv));
        println!(
            "{name} {} × {rows} rows, context {:>4}: {:>7.2} ms, linears {:.0} %, attention {:.0} %",
            sequences.len(),
            last + 1,
            whole * 1e3,
            100.0 * linears / whole,
            100.0 * attention / whole,
        );
    }
}

struct Layer {
    qkv: PackedLinear,
    output: PackedLinear,
    gate_up: GatedLinear,
    down: PackedLinear,
}

impl Layer {
    fn dummy(pool: &Pool, format: WeightFormat) -> Layer {
        let [qkv, output, _, down] = LAYER.map(|shape| dummy(pool, format, shape));
        let gate_up = GatedLinear::pack(pool, format, (FEATURES, HIDDEN), None, dummy_row);
        Layer { qkv, output, gate_up, down }
    }
}

struct Step<'a> {
    pool: &'a Pool,
    layers: &'a [Layer],
    head: &'a PackedLinear,
    rope: &'a Rope,
    sequences: &'a [Sequence<'a>],
    rows: usize,
    positions: Vec<u32>,
    slots: Vec<KvSlot>,
    hidden: Vec<f32>,
    normed: Vec<f32>,
    qkv: Vec<f32>,
    attended: Vec<f32>,
    features: Vec<f32>,
    logits: Vec<f32>,
    weight: Vec<f32>,
}

impl<'a> Step<'a> {
    fn new(
        pool: &'a Pool,
        layers: &'a [Layer],
        head: &'a PackedLinear,
        rope: &'a Rope,
        sequences: &'a [Sequence<'a>],
    ) -> Step<'a> {
        let rows: usize = sequences.iter().map(|sequence| sequence.rows).sum();
        let places = || {
            sequences.iter().flat_map(|sequence| {
                let first = sequence.first_position;
                (first..first + sequence.rows).map(|position| (sequence.block_table, position))
            })
        };
        Step {
            pool,
            layers,
            head,
            rope,
            sequences,
            rows,
            positions: places().map(|(_, position)| position as u32).collect(),
            slots: places().map(|(table, position)| KvSlot::at(table, position)).collect(),
            hidden: vec![0.1; rows * HIDDEN],
            normed: vec![0.1; rows * HIDDEN],
            qkv: vec![0.1; rows * QKV],
            attended: vec![0.1; rows * HIDDEN],
            features: vec![0.1; rows * FEATURES],
            logits: vec![0.0; sequences.len() * VOCABULARY],
            weight: vec![1.0; HIDDEN],
        }
    }

    fn run_without_attention(&mut self, kv: &mut KvPool) {
        let sequences = std::mem::take(&mut self.sequences);
        self.run(kv, true, true);
        self.sequences = sequences;
    }

    /// One forward; `linears` and `rest` say which part of it to compute.
    fn run(&mut self, kv: &mut KvPool, linears: bool, rest: bool) {
        let pool = self.pool;
        let shape = AttentionShape { heads: HEADS, scale: 0.125 };
        let plan = AttentionPlan::new(pool, kv.layout(), shape, self.sequences);
        self.hidden.fill(0.1);
        let linear = |linear: &PackedLinear, x: &[f32], y: &mut [f32], write: Write| {
            if linears {
                linear.forward(pool, x, y, write);
            }
        };
        for (index, Layer { qkv, output, gate_up, down }) in self.layers.iter().enumerate() {
            if rest {
                rms_norm(pool, &self.hidden, &self.weight, 1e-5, &mut self.normed);
            }
            linear(qkv, &self.normed, &mut self.qkv, Write::Set);
            if rest {
                let heads = Heads { stride: QKV, first: 0, count: HEADS + KV_HEADS, dim: HEAD_DIM };
                self.rope.apply(pool, &mut self.qkv, heads, &self.positions);
                let columns = |from: usize, heads: usize| {
                    Rows::columns(&self.qkv, QKV, from * HEAD_DIM..(from + heads) * HEAD_DIM)
                };
                let (keys, values) = (columns(HEADS, KV_HEADS), columns(HEADS + KV_HEADS, KV_HEADS));
                kv.append(pool, index, &self.slots, keys, values);
                plan.run(pool, kv, index, columns(0, HEADS), &mut self.attended);
            }
            linear(output, &self.attended, &mut self.hidden, Write::Add);
            if rest {
                rms_norm(pool, &self.hidden, &self.weight, 1e-5, &mut self.normed);
            }
            if linears {
                gate_up.feed(pool, &self.normed, down, &mut self.features, &mut self.hidden);
            }
        }
        let sampled = self.logits.len() / VOCABULARY * HIDDEN;
        if rest {
            rms_norm(pool, &self.hidden, &self.weight, 1e-5, &mut self.normed);
        }
        linear(self.head, &self.normed[..sampled], &mut self.logits, Write::Set);
    }
}
