//! The operations of the model on a board: kernels of our own, multiplications by the board.
//!
//! The residual stream is in 32 bits, everything else in 16. What a linear adds to the residual stream waits in a
//! buffer of its own until the norm that follows takes it in, so that the stream is read and written once.

use firstlight_cuda::arguments::{
    Activation, DevicePtr, Embed, HeadNorm, KvAppendRope, Norm, PagedDecode, PagedPrefill, Pairing, Sample,
};
use firstlight_cuda::board::{Board, BoardError, Product};
use firstlight_cuda::launch::{DecodeShape, Launch};
use firstlight_kernels::rope::RopePairing;
use firstlight_kernels::rows::Heads;

use super::held::{
    Buffer, INVARIANT_ROWS, LEAST_ROWS_WITH_BIAS, LOGITS_TILE, Linear, NormWeights, Numbers, Rope, Shape,
};
use super::rows::{Attention, Rows};
use crate::model::ops::{Ops, Role};
use crate::weights::config::{self, ModelConfig};
use crate::weights::{Matrix, Weight};

/// Bytes that are written to the board at once when weights are loaded.
const WRITE_BYTES: usize = 16 << 20;

/// A board, the KV pool on it, and what operations leave for one another.
pub(super) struct CudaOps<B> {
    pub board: B,
    shape: Shape,
    vocabulary: usize,
    scale_log2: f32,
    /// The KV pool, once it is there.
    kv: u64,
    /// What is to be added to the residual stream.
    delta: Buffer,
    delta_waits: bool,
    partial_out: u64,
    partial_softmax: u64,
    /// Tokens of the last decode forward.
    pub sampled: u64,
    weight_bytes: u64,
    failed: Option<BoardError>,
}

impl<B: Board> CudaOps<B> {
    /// Without a KV pool until [`CudaOps::place_kv`], which is sized by what weights leave.
    ///
    /// # Errors
    /// When there is no memory for it.
    pub fn new(mut board: B, config: &ModelConfig, mut shape: Shape) -> Result<Self, BoardError> {
        // A multiplication over whole tiles may then write behind the last row.
        shape.rows = shape.rows.next_multiple_of(INVARIANT_ROWS);
        shape.logit_rows = shape.logit_rows.next_multiple_of(INVARIANT_ROWS);
        let parts = shape.logit_rows * shape.heads * shape.splits();
        let partial_out = board.alloc(parts * shape.kv.head_dim * size_of::<f32>())?;
        let partial_softmax = board.alloc(parts * size_of::<[f32; 2]>())?;
        let sampled = board.alloc(shape.logit_rows * size_of::<i32>())?;
        let delta = Buffer::new(&mut board, &shape, Role::Hidden, config.hidden)?;
        Ok(Self {
            board,
            shape,
            vocabulary: config.vocab_size,
            scale_log2: shape.kv.scale_log2(),
            kv: 0,
            delta,
            delta_waits: false,
            partial_out,
            partial_softmax,
            sampled,
            weight_bytes: 0,
            failed: None,
        })
    }

    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    pub fn weight_bytes(&self) -> u64 {
        self.weight_bytes
    }

    /// Puts the KV pool at `address`.
    pub fn place_kv(&mut self, address: u64) {
        self.kv = address;
    }

    /// Where a block of the KV pool is.
    pub fn block(&self, block: u32) -> u64 {
        self.kv + block as u64 * self.shape.kv.block_bytes() as u64
    }

    /// Chooses a token from each row of `logits`, as the rows say, into `tokens`.
    pub fn sample(&mut self, rows: &Rows, logits: &Buffer, tokens: u64) {
        let arguments = Sample {
            logits: DevicePtr::at(logits.at),
            sampling: rows.sampling,
            tokens: DevicePtr::at(tokens),
            vocabulary: self.vocabulary as i32,
            stride: logits.width as i32,
        };
        self.launch(&Launch::sample(logits.rows), &arguments);
    }

    /// What went wrong since the last time this was asked.
    ///
    /// # Errors
    /// That.
    pub fn check(&mut self) -> Result<(), BoardError> {
        self.delta_waits = false;
        self.failed.take().map_or(Ok(()), Err)
    }

    /// Queues a kernel, unless something failed before: the operations themselves have no way to say so.
    fn launch<A: firstlight_cuda::arguments::Arguments>(&mut self, launch: &Launch, arguments: &A) {
        if self.failed.is_none() && launch.grid.iter().all(|&blocks| blocks > 0) {
            // SAFETY: each operation pairs a kernel with its arguments. Addresses are of buffers made for
            // `shape.rows` rows or `shape.logit_rows`, which the backend keeps to; of weights as large as the
            // configuration says; of rows that the backend laid out; of the KV pool, within which it keeps slots
            // and block tables.
            self.failed = unsafe { self.board.launch(launch, arguments) }.err();
        }
    }

    fn product(&mut self, weights: &Linear, x: &Buffer, out: Buffer, gelu_tanh: bool) {
        let rows = match weights.bias {
            _ if self.shape.batch_invariant => INVARIANT_ROWS,
            Some(_) => x.rows.max(LEAST_ROWS_WITH_BIAS),
            None => x.rows,
        };
        for first in (0..x.rows).step_by(rows.max(1)) {
            let product = Product {
                out: out.row(first),
                wide_out: out.number_bytes == 4,
                input: x.row(first),
                weight: weights.weight,
                bias: weights.bias,
                gelu_tanh,
                rows,
                outputs: weights.outputs,
                inputs: weights.inputs,
            };
            if self.failed.is_none() {
                // SAFETY: as in `launch`; buffers have room for whole tiles of rows.
                self.failed = unsafe { self.board.multiply(&product) }.err();
            }
        }
    }

    fn norm_rows(&mut self, norm: &NormWeights, x: &Buffer, rows: DevicePtr<i32>, out: &Buffer) {
        let delta = if std::mem::take(&mut self.delta_waits) { self.delta.at } else { 0 };
        let arguments = Norm {
            x: DevicePtr::at(x.at),
            delta: DevicePtr::at(delta),
            scale: DevicePtr::at(norm.scale),
            bias: DevicePtr::at(norm.bias),
            rows,
            out: DevicePtr::at(out.at),
            width: x.width as i32,
            epsilon: norm.epsilon,
        };
        let launch = match norm.kind {
            config::Norm::Rms => Launch::rms_norm(out.rows),
            config::Norm::Layer => Launch::layer_norm(out.rows),
        };
        self.launch(&launch, &arguments);
    }

    fn activate(&mut self, launch: &Launch, input: &Buffer, out: &Buffer) {
        let arguments = Activation {
            input: DevicePtr::at(input.at),
            out: DevicePtr::at(out.at),
            rows: out.rows as i64,
            width: out.width as i32,
            reserved: 0,
        };
        self.launch(launch, &arguments);
    }

    /// Memory with these bytes; null where that failed.
    fn place(&mut self, bytes: &[u8]) -> u64 {
        self.place_chunks(bytes.len(), [bytes])
    }

    fn place_chunks(&mut self, len: usize, chunks: impl IntoIterator<Item = impl AsRef<[u8]>>) -> u64 {
        if self.failed.is_some() {
            return 0;
        }
        let placed = self.board.alloc(len).and_then(|address| {
            let mut written = 0;
            for chunk in chunks {
                let chunk = chunk.as_ref();
                assert!(written + chunk.len() <= len, "more than was allocated");
                // SAFETY: within what was allocated.
                unsafe { self.board.write(address + written as u64, chunk) }?;
                written += chunk.len();
            }
            Ok(address)
        });
        match placed {
            Ok(address) => {
                self.weight_bytes += len as u64;
                address
            }
            Err(error) => {
                self.failed = Some(error);
                0
            }
        }
    }
}

impl<B: Board> Ops for CudaOps<B> {
    type Buffer = Buffer;
    type Linear = Linear;
    type Norm = NormWeights;
    type Rope = Rope;
    type Step<'a> = Rows;

    fn linear(&mut self, weight: Weight, parts: &[Matrix<'_>], bias: Option<&[f32]>) -> Linear {
        let number = self.shape.number;
        let (inputs, filled) = (parts[0].inputs, parts.iter().map(|part| part.outputs).sum::<usize>());
        let outputs = match weight {
            Weight::TokenEmbedding | Weight::Output => filled.next_multiple_of(LOGITS_TILE),
            _ => filled,
        };
        let rows_at_once = (WRITE_BYTES / (2 * inputs)).max(1);
        let chunks = parts.iter().flat_map(|part| {
            (0..part.outputs).step_by(rows_at_once).map(move |first| {
                let mut row = vec![0.0; inputs];
                let mut numbers = Vec::with_capacity(rows_at_once * inputs);
                for index in first..part.outputs.min(first + rows_at_once) {
                    part.read(index, &mut row);
                    numbers.extend(row.iter().map(|&value| number.narrow(value)));
                }
                Numbers(numbers)
            })
        });
        let spare = (outputs > filled).then(|| Numbers(vec![0; (outputs - filled) * inputs]));
        let weight = self.place_chunks(outputs * inputs * 2, chunks.chain(spare));
        let bias = bias.map(|bias| {
            let numbers: Vec<u16> = bias.iter().map(|&value| number.narrow(value)).collect();
            self.place(bytemuck::cast_slice(&numbers))
        });
        Linear { weight, bias, inputs, outputs }
    }

    fn norm(&mut self, kind: config::Norm, scale: Vec<f32>, bias: Option<Vec<f32>>, eps: f32) -> NormWeights {
        let scale = self.place(bytemuck::cast_slice(&scale));
        let bias = bias.map_or(0, |bias| self.place(bytemuck::cast_slice(&bias)));
        NormWeights { kind, scale, bias, epsilon: eps }
    }

    fn rope(&mut self, pairing: RopePairing, inverse_frequencies: &[f64], context: usize) -> Rope {
        let mut angles = Vec::with_capacity(2 * context * inverse_frequencies.len());
        for position in 0..context {
            let turned = || inverse_frequencies.iter().map(|frequency| position as f64 * frequency);
            angles.extend(turned().map(|angle| angle.cos() as f32));
            angles.extend(turned().map(|angle| angle.sin() as f32));
        }
        let pairing = match pairing {
            RopePairing::Halves => Pairing::Halves,
            RopePairing::Interleaved => Pairing::Interleaved,
        };
        Rope { angles: self.place(bytemuck::cast_slice(&angles)), pairs: inverse_frequencies.len(), pairing }
    }

    fn buffer(&mut self, role: Role, width: usize) -> Buffer {
        Buffer::new(&mut self.board, &self.shape, role, width).unwrap_or_else(|error| {
            self.failed.get_or_insert(error);
            Buffer { at: 0, width, rows: 0, number_bytes: 2 }
        })
    }

    fn embed(
        &mut self,
        tokens: &Linear,
        positions: Option<&Linear>,
        step: &Rows,
        _scratch: &mut Buffer,
        out: &mut Buffer,
    ) {
        out.rows = step.rows;
        let arguments = Embed {
            x: DevicePtr::at(out.at),
            token_table: DevicePtr::at(tokens.weight),
            position_table: DevicePtr::at(positions.map_or(0, |table| table.weight)),
            tokens: step.tokens,
            sources: step.sources,
            sampled: DevicePtr::at(self.sampled),
            positions: step.positions,
            width: out.width as i32,
            reserved: 0,
        };
        self.launch(&Launch::embed(step.rows), &arguments);
    }

    fn normalize(&mut self, norm: &NormWeights, x: &mut Buffer, out: &mut Buffer) {
        out.rows = x.rows;
        self.norm_rows(norm, x, DevicePtr::NULL, out);
    }

    fn normalize_selected(
        &mut self,
        norm: &NormWeights,
        step: &Rows,
        x: &mut Buffer,
        _scratch: &mut Buffer,
        out: &mut Buffer,
    ) {
        out.rows = step.logit_rows;
        self.norm_rows(norm, x, step.selected, out);
    }

    fn normalize_heads(&mut self, norm: &NormWeights, heads: Heads, x: &mut Buffer) {
        let arguments = HeadNorm {
            rows: DevicePtr::at(x.at),
            scale: DevicePtr::at(norm.scale),
            stride: heads.stride as i64,
            first: heads.first as i32,
            heads: heads.count as i32,
            dim: heads.dim as i32,
            epsilon: norm.epsilon,
        };
        self.launch(&Launch::head_norm(x.rows, heads.count), &arguments);
    }

    fn multiply(&mut self, weights: &Linear, x: &Buffer, y: &mut Buffer) {
        y.rows = x.rows;
        self.product(weights, x, *y, false);
    }

    fn multiply_gelu_tanh(&mut self, weights: &Linear, x: &Buffer, y: &mut Buffer) {
        y.rows = x.rows;
        let fused = weights.bias.is_some();
        self.product(weights, x, *y, fused);
        if !fused {
            self.gelu_tanh(y);
        }
    }

    fn multiply_add(&mut self, weights: &Linear, x: &Buffer, _y: &mut Buffer) {
        debug_assert!(!self.delta_waits, "a norm comes after each");
        self.product(weights, x, self.delta, false);
        self.delta_waits = true;
    }

    fn attend(&mut self, layer: usize, rope: Option<&Rope>, step: &Rows, qkv: &mut Buffer, out: &mut Buffer) {
        out.rows = qkv.rows;
        let (heads, kv) = (self.shape.heads, self.shape.kv.layer(DevicePtr::at(self.kv), layer));
        let append = KvAppendRope {
            qkv: DevicePtr::at(qkv.at),
            kv,
            slots: step.slots,
            positions: step.positions,
            angles: DevicePtr::at(rope.map_or(0, |rope| rope.angles)),
            heads: heads as i32,
            pairs: rope.map_or(0, |rope| rope.pairs as i32),
            pairing: rope.map_or(Pairing::None, |rope| rope.pairing),
            reserved: 0,
        };
        self.launch(&Launch::kv_append_rope(step.rows), &append);
        match step.attention {
            Attention::Decode { context, block_table, table_stride, splits } => {
                let kv_heads = self.shape.kv.kv_heads;
                // Enough blocks for every multiprocessor where rows are few.
                let wanted = (2 * self.board.processors()).div_ceil(step.rows * kv_heads);
                let shape = DecodeShape {
                    rows: step.rows,
                    heads,
                    kv_heads,
                    head_dim: self.shape.kv.head_dim,
                    blocks_per_split: self.shape.blocks_per_split(),
                    splits,
                    split_columns: wanted.clamp(1, splits),
                };
                let arguments = PagedDecode {
                    out: DevicePtr::at(out.at),
                    queries: DevicePtr::at(qkv.at),
                    kv,
                    block_table,
                    context,
                    partial_out: DevicePtr::at(self.partial_out),
                    partial_softmax: DevicePtr::at(self.partial_softmax),
                    query_stride: qkv.width as i64,
                    scale_log2: self.scale_log2,
                    heads: heads as i32,
                    table_stride: table_stride as i32,
                    blocks_per_split: shape.blocks_per_split as i32,
                    splits: self.shape.splits() as i32,
                    reserved: 0,
                };
                self.launch(&Launch::paged_decode(&shape), &arguments);
                if splits > 1 {
                    self.launch(&Launch::paged_decode_join(&shape), &arguments);
                }
            }
            Attention::Prefill { tiles, tile_count, block_table, table_stride } => {
                let arguments = PagedPrefill {
                    out: DevicePtr::at(out.at),
                    queries: DevicePtr::at(qkv.at),
                    kv,
                    block_table,
                    tiles,
                    query_stride: qkv.width as i64,
                    scale_log2: self.scale_log2,
                    heads: heads as i32,
                    table_stride: table_stride as i32,
                    reserved: 0,
                };
                self.launch(&Launch::paged_prefill(tile_count, heads), &arguments);
            }
        }
    }

    fn silu_mul(&mut self, gate_up: &Buffer, out: &mut Buffer) {
        out.rows = gate_up.rows;
        self.activate(&Launch::silu_mul(out.rows, out.width), gate_up, out);
    }

    fn gelu_tanh(&mut self, x: &mut Buffer) {
        self.activate(&Launch::gelu_tanh(x.rows, x.width), x, x);
    }

    fn gelu_erf(&mut self, x: &mut Buffer) {
        self.activate(&Launch::gelu_erf(x.rows, x.width), x, x);
    }
}
