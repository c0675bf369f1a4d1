//! A whole SmolLM2-135M forward, kernel by kernel: how much of it is linears, the activation between gate, up and down
//! included.

use firstlight_kernels::attention::{AttentionPlan, AttentionShape, Sequence};
use firstlight_kernels::buffer::Buffer;
use firstlight_kernels::kv::{BLOCK_TOKENS, KvLayout, KvPool, KvSlot, KvType};
use firstlight_kernels::linear::{GatedLinear, PackedLinear, WeightFormat, Write};
use firstlight_kernels::norm::Norm;
use firstlight_kernels::pool::Pool;
use firstlight_kernels::rope::{Rope, RopePairing, inverse_frequencies};
use firstlight_kernels::rows::Rows;

use crate::linears::{LAYER, LAYERS, VOCABULARY, dummy, dummy_row};
use crate::stopwatch::{Laps, median};

const HIDDEN: usize = 576;
const HEADS: usize = 9;
const KV_HEADS: usize = 3;
const HEAD_DIM: usize = 64;
const QKV: usize = (HEADS + 2 * KV_HEADS) * HEAD_DIM;
const FEATURES: usize = 1536;

/// Sequences, rows of each, and the position of the last row.
const CASES: [(usize, usize, usize); 9] = [
    (1, 1, 127),
    (1, 1, 1023),
    (1, 1, 8191),
    (16, 1, 255),
    (64, 1, 63),
    (64, 1, 511),
    (1, 128, 127),
    (1, 512, 511),
    (4, 512, 511),
];

pub fn print(pool: &Pool, filter: &str) {
    for format in [WeightFormat::Bf16, WeightFormat::Q8_0, WeightFormat::Q4_1] {
        let name = |(sequences, rows, last): (usize, usize, usize)| {
            format!("step {format:?} {sequences} × {rows} rows, context {:>4}", last + 1)
        };
        let cases = CASES.map(|case| (name(case), case));
        let cases: Vec<_> = cases.into_iter().filter(|(name, _)| name.contains(filter)).collect();
        if !cases.is_empty() {
            print_format(pool, format, cases);
        }
    }
}

fn print_format(pool: &Pool, format: WeightFormat, cases: Vec<(String, (usize, usize, usize))>) {
    let layers: Vec<Layer> = (0..LAYERS).map(|_| Layer::dummy(pool, format)).collect();
    let head = dummy(pool, format, (VOCABULARY, HIDDEN));
    let rope = Rope::new(RopePairing::Interleaved, &inverse_frequencies(1e5, HEAD_DIM), 8192);
    for (name, (sequences, rows, last)) in cases {
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
        write_all(pool, &mut kv, &tables);
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
        let mut parts = Laps::new();
        let whole = median(runs, || step.run(&mut kv, &mut parts));
        let [linears, storing, attention] = parts.shares().map(|share| 100.0 * share);
        println!(
            "{name}: {:>7.2} ms, linears {linears:.0} %, attention {attention:.0} %, \
             storing {storing:.0} %",
            whole * 1e3,
        );
    }
}

/// Writes every block: pages that nobody has written are all read from one page of zeros, which stays in the cache.
fn write_all(pool: &Pool, kv: &mut KvPool, tables: &[Vec<u32>]) {
    const WIDTH: usize = KV_HEADS * HEAD_DIM;
    for table in tables {
        let slots: Vec<KvSlot> = (0..table.len() * BLOCK_TOKENS).map(|at| KvSlot::at(table, at)).collect();
        let rows = vec![0.1; slots.len() * WIDTH];
        let rows = || Rows::columns(&rows, WIDTH, 0..WIDTH);
        (0..LAYERS).for_each(|layer| kv.append(pool, layer, &slots, (rows(), None), rows()));
    }
}

/// Parts of a forward.
enum Part {
    Linears,
    Storing,
    Attention,
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
    hidden: Buffer<f32>,
    normed: Buffer<f32>,
    qkv: Buffer<f32>,
    attended: Buffer<f32>,
    features: Buffer<f32>,
    chosen: Vec<u32>,
    norm: Norm,
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
            hidden: filled(rows * HIDDEN),
            normed: filled(rows * HIDDEN),
            qkv: filled(rows * QKV),
            attended: filled(rows * HIDDEN),
            features: filled(rows * FEATURES),
            chosen: vec![0; sequences.len()],
            norm: Norm::rms(vec![1.0; HIDDEN], 1e-5),
        }
    }

    /// One forward.
    fn run(&mut self, kv: &mut KvPool, laps: &mut Laps<3>) {
        let pool = self.pool;
        let shape = AttentionShape { heads: HEADS, scale: 0.125 };
        let plan = AttentionPlan::new(pool, kv.layout(), shape, self.sequences);
        self.hidden.fill(0.1);
        laps.start();
        for (index, Layer { qkv, output, gate_up, down }) in self.layers.iter().enumerate() {
            qkv.forward_normed(pool, &self.norm, &self.hidden, &mut self.qkv, Write::Set);
            laps.end(Part::Linears as usize);
            let columns = |from: usize, heads: usize| {
                Rows::columns(&self.qkv, QKV, from * HEAD_DIM..(from + heads) * HEAD_DIM)
            };
            let keys = (columns(HEADS, KV_HEADS), Some((self.rope, &self.positions[..])));
            kv.append(pool, index, &self.slots, keys, columns(HEADS + KV_HEADS, KV_HEADS));
            laps.end(Part::Storing as usize);
            plan.run(pool, kv, index, (columns(0, HEADS), Some(self.rope)), &mut self.attended);
            laps.end(Part::Attention as usize);
            output.forward(pool, &self.attended, &mut self.hidden, Write::Add);
            laps.end(Part::Linears as usize);
            let between = (&mut self.normed[..], &mut self.features[..]);
            gate_up.feed(pool, &self.norm, down, between, &mut self.hidden);
            laps.end(Part::Linears as usize);
        }
        let normed = &mut self.normed[..self.chosen.len() * HIDDEN];
        self.norm.forward(pool, &self.hidden[..normed.len()], normed);
        self.head.argmax(pool, normed, &mut self.chosen);
        laps.end(Part::Linears as usize);
    }
}

/// Activations as an engine holds them.
fn filled(len: usize) -> Buffer<f32> {
    let mut buffer = Buffer::zeroed(len);
    buffer.fill(0.1);
    buffer
}
