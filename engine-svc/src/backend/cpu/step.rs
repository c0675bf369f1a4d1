//! The rows of one forward.

use firstlight_kernels::attention::{AttentionPlan, AttentionShape, Sequence};
use firstlight_kernels::kv::KvSlot;

use super::ops::CpuOps;
use crate::backend::Chunk;

/// Which rows' logits are wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LogitRows {
    /// The last row of each chunk that samples.
    Sampled,
    /// Every row.
    All,
}

/// What each row is, in the order of the chunks.
pub struct Step<'a> {
    pub(super) tokens: Vec<u32>,
    pub(super) positions: Vec<u32>,
    pub(super) slots: Vec<KvSlot>,
    pub(super) attention: AttentionPlan<'a>,
    pub(super) logit_rows: Vec<u32>,
    /// Whether all that is asked of logits is which are largest.
    pub(super) is_greedy: bool,
}

impl<'a> Step<'a> {
    /// `sequences` are those of the same chunks.
    pub(super) fn new(
        ops: &CpuOps,
        chunks: &[Chunk<'_>],
        sequences: &'a [Sequence<'a>],
        logits: LogitRows,
    ) -> Self {
        let shape: AttentionShape = ops.attention_shape();
        let places = || chunks.iter().flat_map(|chunk| (chunk.start..chunk.end()).map(move |at| (chunk, at)));
        let (logit_rows, is_greedy) = match logits {
            LogitRows::All => ((0..places().count() as u32).collect(), false),
            LogitRows::Sampled => {
                let mut asking = chunks.iter().filter_map(|chunk| chunk.sample);
                (last_rows(chunks), asking.all(|sampling| sampling.is_greedy()))
            }
        };
        Self {
            tokens: chunks.iter().flat_map(|chunk| chunk.tokens).copied().collect(),
            positions: places().map(|(_, position)| position as u32).collect(),
            slots: places().map(|(chunk, position)| KvSlot::at(chunk.blocks, position)).collect(),
            attention: AttentionPlan::new(ops.pool(), ops.kv_layout(), shape, sequences),
            logit_rows,
            is_greedy,
        }
    }
}

/// The rows of each chunk, as attention wants them.
pub(super) fn sequences<'a>(chunks: &'a [Chunk<'a>]) -> Vec<Sequence<'a>> {
    let mut first_row = 0;
    let of_chunk = |chunk: &'a Chunk<'a>| {
        let rows = chunk.tokens.len();
        let sequence = Sequence { first_row, rows, first_position: chunk.start, block_table: chunk.blocks };
        first_row += rows;
        sequence
    };
    chunks.iter().map(of_chunk).collect()
}

fn last_rows(chunks: &[Chunk<'_>]) -> Vec<u32> {
    let mut rows = 0;
    let mut last = Vec::new();
    for chunk in chunks {
        rows += chunk.tokens.len() as u32;
        if chunk.sample.is_some() {
            last.push(rows - 1);
        }
    }
    last
}
