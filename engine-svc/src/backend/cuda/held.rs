//! What a model holds on a board: sizes, buffers, weights.

use firstlight_cuda::arguments::Pairing;
use firstlight_cuda::board::{Board, BoardError};
use firstlight_cuda::kv::{BLOCK_TOKENS, KvLayout};
use firstlight_cuda::source::Number;

use crate::model::ops::Role;
use crate::weights::config;

/// Rows of every multiplication where tokens must not depend on neighbours.
pub(super) const INVARIANT_ROWS: usize = 64;
/// Logits of a row are a multiple of these: with an odd number of them multiplications go by single elements.
pub(super) const LOGITS_TILE: usize = 64;
/// With fewer, libtorch writes the bias in a kernel of its own and adds to it.
pub(super) const LEAST_ROWS_WITH_BIAS: usize = 2;
/// Least blocks between the boundaries at which the keys of a decode row are split.
const LEAST_BLOCKS_PER_SPLIT: usize = 16;
/// Most splits of a decode row: their parts are held for every row.
const MOST_SPLITS: usize = 32;

/// Sizes that do not change once the model is loaded.
#[derive(Debug, Clone, Copy)]
pub(super) struct Shape {
    pub number: Number,
    pub heads: usize,
    pub kv: KvLayout,
    /// Rows of a forward, at most.
    pub rows: usize,
    /// Rows of a decode forward, and rows whose logits are wanted, at most.
    pub logit_rows: usize,
    /// Blocks of the longest context.
    pub context_blocks: usize,
    /// Every multiplication over the same number of rows.
    pub batch_invariant: bool,
}

impl Shape {
    pub fn blocks_per_split(&self) -> usize {
        self.context_blocks.div_ceil(MOST_SPLITS).max(LEAST_BLOCKS_PER_SPLIT)
    }

    /// Of the longest context.
    pub fn splits(&self) -> usize {
        self.context_blocks.div_ceil(self.blocks_per_split()).max(1)
    }

    /// Into how many parts a decode forward deals the keys of its rows, the longest of which has so many: one, which
    /// needs no kernel to join them, or as many as there can be.
    pub fn splits_of(&self, context: usize) -> usize {
        if context <= self.blocks_per_split() * BLOCK_TOKENS { 1 } else { self.splits() }
    }

    /// What [`Shape::splits_of`] may say.
    pub fn all_splits(&self) -> impl Iterator<Item = usize> + use<> {
        [self.splits(), 1].into_iter().take(if self.splits() > 1 { 2 } else { 1 })
    }
}

/// Rows of numbers on the board, as many as the shape allows.
#[derive(Debug, Clone, Copy)]
pub(super) struct Buffer {
    pub at: u64,
    pub width: usize,
    /// Of the forward under way.
    pub rows: usize,
    pub number_bytes: usize,
}

impl Buffer {
    pub fn new<B: Board>(board: &mut B, shape: &Shape, role: Role, width: usize) -> Result<Self, BoardError> {
        let (rows, width, number_bytes) = match role {
            Role::Residual => (shape.rows, width, 4),
            Role::Hidden => (shape.rows, width, 2),
            Role::Selected => (shape.logit_rows, width, 2),
            Role::Logits => (shape.logit_rows, width.next_multiple_of(LOGITS_TILE), 4),
        };
        Ok(Self { at: board.alloc(rows * width * number_bytes)?, width, rows: 0, number_bytes })
    }

    /// Where a row is.
    pub fn row(&self, row: usize) -> u64 {
        self.at + (row * self.width * self.number_bytes) as u64
    }
}

/// A weight matrix `[outputs][inputs]` on the board.
pub(super) struct Linear {
    pub weight: u64,
    pub bias: Option<u64>,
    pub inputs: usize,
    pub outputs: usize,
}

/// A norm's weights on the board.
pub(super) struct NormWeights {
    pub kind: config::Norm,
    pub scale: u64,
    /// 0: none.
    pub bias: u64,
    pub epsilon: f32,
}

/// Angles of every position on the board.
pub(super) struct Rope {
    pub angles: u64,
    pub pairs: usize,
    pub pairing: Pairing,
}

/// 16-bit numbers as bytes.
pub(super) struct Numbers(pub Vec<u16>);

impl AsRef<[u8]> for Numbers {
    fn as_ref(&self) -> &[u8] {
        bytemuck::cast_slice(&self.0)
    }
}
