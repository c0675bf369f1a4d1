//! The KV pool: the keys and values of all sequences in fixed blocks of 16 tokens, laid out so that
//! attention reads them in place.
//!
//! One allocation, `[layer][block][kv head]`, each entry a key part and a value part in the layout of
//! [`KvLayout`]. Which sequence owns which block is not known here: that is the block table's business.

#[cfg(target_arch = "x86_64")]
mod avx512;
mod store;

use half::bf16;

use crate::buffer::Buffer;
use crate::pool::Pool;
use crate::rope::Rope;
use crate::rows::Rows;
pub(crate) use store::KvElement;

/// Tokens in one block.
pub const BLOCK_TOKENS: usize = 16;

/// Elements of a head at most.
pub const MAX_HEAD_DIM: usize = 256;

/// How keys and values are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KvType {
    /// 32-bit floats.
    F32,
    /// bfloat16, rounded to nearest when stored.
    Bf16,
}

/// The shape of a pool, and where an element lies.
///
/// With `g` = 1 for `f32` and 2 for bf16 (what one instruction multiplies), the keys of a block and
/// head are `[head_dim / g][16 tokens][g]` and its values `[16 tokens / g][dim][g]`, where `dim` is
/// the head dimension rounded up to 16. Both are read front to back by a full vector at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KvLayout {
    /// Layers.
    pub layers: usize,
    /// Key/value heads per layer.
    pub kv_heads: usize,
    /// Elements per head: a multiple of 8, at most [`MAX_HEAD_DIM`].
    pub head_dim: usize,
    /// Blocks, numbered from 0.
    pub blocks: usize,
    /// How elements are stored.
    pub kv_type: KvType,
}

impl KvLayout {
    /// Head dimension of the stored values, padded to whole vectors.
    pub fn value_dim(&self) -> usize {
        self.head_dim.next_multiple_of(16)
    }

    /// Bytes of one block over all layers: what a block costs.
    pub fn block_bytes(&self) -> usize {
        let element = match self.kv_type {
            KvType::F32 => 4,
            KvType::Bf16 => 2,
        };
        self.layers * self.kv_heads * self.head_len() * element
    }

    /// Elements of the key part of one block and head.
    pub(crate) fn keys_len(&self) -> usize {
        self.head_dim * BLOCK_TOKENS
    }

    /// Elements of one block and head.
    pub(crate) fn head_len(&self) -> usize {
        self.keys_len() + self.value_dim() * BLOCK_TOKENS
    }

    /// Index of the first element of a block and head.
    pub(crate) fn head_start(&self, layer: usize, block: usize, kv_head: usize) -> usize {
        ((layer * self.blocks + block) * self.kv_heads + kv_head) * self.head_len()
    }
}

/// One token's place in the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KvSlot {
    block: u32,
    offset: u32,
}

impl KvSlot {
    /// The place of the token at `position` of a sequence with this block table.
    ///
    /// # Panics
    /// If the table does not reach that far.
    pub fn at(block_table: &[u32], position: usize) -> KvSlot {
        let block = block_table[position / BLOCK_TOKENS];
        KvSlot { block, offset: (position % BLOCK_TOKENS) as u32 }
    }
}

/// Keys and values of all layers.
#[derive(Debug)]
pub struct KvPool {
    layout: KvLayout,
    data: KvData,
}

#[derive(Debug)]
pub(crate) enum KvData {
    F32(Buffer<f32>),
    Bf16(Buffer<bf16>),
}

impl KvPool {
    /// A pool of the given shape. Memory is used only as blocks are first written.
    ///
    /// # Panics
    /// If the head dimension is not a multiple of 8 up to [`MAX_HEAD_DIM`].
    pub fn new(layout: KvLayout) -> KvPool {
        let dim = layout.head_dim;
        assert!(
            dim > 0 && dim.is_multiple_of(8) && dim <= MAX_HEAD_DIM,
            "head dimension {dim} is no multiple of 8 up to {MAX_HEAD_DIM}"
        );
        let len = layout.layers * layout.blocks * layout.kv_heads * layout.head_len();
        let data = match layout.kv_type {
            KvType::F32 => KvData::F32(Buffer::zeroed(len)),
            KvType::Bf16 => KvData::Bf16(Buffer::zeroed(len)),
        };
        KvPool { layout, data }
    }

    /// The shape.
    pub fn layout(&self) -> &KvLayout {
        &self.layout
    }

    pub(crate) fn data(&self) -> &KvData {
        &self.data
    }

    /// Stores row i of `keys`, rotated by the angle of `positions[i]` if there is a rope, and of `values`, each
    /// `kv_heads · head_dim` wide, at `slots[i]` of `layer`.
    ///
    /// # Panics
    /// If the shapes do not fit, a slot is outside the pool, or a position outside the rope.
    pub fn append(
        &mut self,
        pool: &Pool,
        layer: usize,
        slots: &[KvSlot],
        (keys, rotation): (Rows<'_>, Option<(&Rope, &[u32])>),
        values: Rows<'_>,
    ) {
        let layout = self.layout;
        let width = layout.kv_heads * layout.head_dim;
        assert!(layer < layout.layers, "layer {layer} of {}", layout.layers);
        assert!(keys.width() == width && values.width() == width, "rows are not {width} wide");
        assert!(keys.len() == slots.len() && values.len() == slots.len(), "one slot per row");
        assert!(rotation.is_none_or(|(_, positions)| positions.len() == slots.len()), "one position per row");
        for slot in slots {
            assert!((slot.block as usize) < layout.blocks, "block {} of {}", slot.block, layout.blocks);
        }
        let rows = store::Appended { layout, layer, slots, keys, rotation, values };
        match &mut self.data {
            KvData::F32(data) => rows.store(pool, data),
            KvData::Bf16(data) => rows.store(pool, data),
        }
    }

    /// Copies one block over all layers, for copy-on-write.
    ///
    /// # Panics
    /// If a block is outside the pool.
    pub fn copy_block(&mut self, from: u32, to: u32) {
        let layout = self.layout;
        for block in [from, to] {
            assert!((block as usize) < layout.blocks, "block {block} of {}", layout.blocks);
        }
        let len = layout.kv_heads * layout.head_len();
        for layer in 0..layout.layers {
            let source = layout.head_start(layer, from as usize, 0);
            let target = layout.head_start(layer, to as usize, 0);
            match &mut self.data {
                KvData::F32(data) => data.copy_within(source..source + len, target),
                KvData::Bf16(data) => data.copy_within(source..source + len, target),
            }
        }
    }

    /// Overwrites a whole block with NaN: tests show that unused slots do not leak.
    pub fn poison_block(&mut self, block: u32) {
        let layout = self.layout;
        let len = layout.kv_heads * layout.head_len();
        for layer in 0..layout.layers {
            let start = layout.head_start(layer, block as usize, 0);
            match &mut self.data {
                KvData::F32(data) => data[start..start + len].fill(f32::NAN),
                KvData::Bf16(data) => data[start..start + len].fill(bf16::NAN),
            }
        }
    }
}
