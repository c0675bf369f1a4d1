//! Where the rows of a forward lie on the board.

use firstlight_cuda::arguments::{DevicePtr, PrefillTile, RowSampling};
use firstlight_cuda::launch::PREFILL_TILE_ROWS;

use super::inputs::{DecodeLayout, PrefillInputs, SAMPLING_WORDS};

/// The columns of a forward's rows, by address.
pub(super) struct Rows {
    pub rows: usize,
    pub tokens: DevicePtr<i32>,
    pub sources: DevicePtr<i32>,
    pub positions: DevicePtr<i32>,
    pub slots: DevicePtr<i32>,
    /// How many rows' logits are wanted.
    pub logit_rows: usize,
    /// Which; null: all.
    pub selected: DevicePtr<i32>,
    /// How to choose from each of them.
    pub sampling: DevicePtr<RowSampling>,
    pub attention: Attention,
}

/// What the rows attend to.
#[derive(Clone, Copy)]
pub(super) enum Attention {
    /// A row for each sequence.
    Decode {
        context: DevicePtr<i32>,
        block_table: DevicePtr<i32>,
        table_stride: usize,
        /// Parts into which keys are dealt.
        splits: usize,
    },
    /// Tiles of rows of one sequence each.
    Prefill {
        tiles: DevicePtr<PrefillTile>,
        tile_count: usize,
        block_table: DevicePtr<i32>,
        table_stride: usize,
    },
}

/// The rows of a decode forward of `bucket` rows, in the static buffer at `base`, with keys in so many parts.
pub(super) fn decode_rows(base: u64, layout: &DecodeLayout, bucket: usize, splits: usize) -> Rows {
    let column = |words| DevicePtr::<i32>::at(base).offset(words);
    Rows {
        rows: bucket,
        tokens: column(layout.tokens()),
        sources: column(layout.sources()),
        positions: column(layout.positions()),
        slots: column(layout.slots()),
        logit_rows: bucket,
        selected: DevicePtr::NULL,
        sampling: DevicePtr::at(base + 4 * layout.sampling() as u64),
        attention: Attention::Decode {
            context: column(layout.context()),
            block_table: column(layout.block_table()),
            table_stride: layout.table_stride(),
            splits,
        },
    }
}

/// Words that [`prefill_rows`] takes, at most.
pub(super) fn prefill_words(rows: usize, chunks: usize, context_blocks: usize) -> usize {
    let tiles = rows / PREFILL_TILE_ROWS + chunks;
    let columns = [4 * rows, TILE_WORDS * tiles, chunks * context_blocks, (1 + SAMPLING_WORDS) * chunks];
    columns.iter().sum::<usize>() + 8 * ALIGNED_WORDS
}

/// The rows of a forward over prompts in the buffer at `base`, and the words that are to be there.
pub(super) fn prefill_rows(base: u64, inputs: &PrefillInputs) -> (Rows, Vec<u32>) {
    let mut words = Words { base, words: Vec::new() };
    let rows = inputs.tokens.len();
    let tiles: Vec<u32> = inputs.tiles.iter().flat_map(tile_words).collect();
    let sampling: Vec<u32> = inputs.sampling.iter().flat_map(RowSampling::words).collect();
    let columns = Rows {
        rows,
        tokens: words.column(&inputs.tokens),
        sources: words.column(&vec![u32::MAX; rows]),
        positions: words.column(&inputs.positions),
        slots: words.column(&inputs.slots),
        logit_rows: inputs.logit_rows.len(),
        selected: words.column(&inputs.logit_rows),
        sampling: words.column(&sampling),
        attention: Attention::Prefill {
            tiles: words.column(&tiles),
            tile_count: inputs.tiles.len(),
            block_table: words.column(&inputs.block_table),
            table_stride: inputs.table_stride,
        },
    };
    (columns, words.words)
}

/// Words of a tile.
const TILE_WORDS: usize = size_of::<PrefillTile>() / 4;
/// Columns begin at multiples of 16 bytes.
const ALIGNED_WORDS: usize = 4;

struct Words {
    base: u64,
    words: Vec<u32>,
}

impl Words {
    fn column<T>(&mut self, values: &[u32]) -> DevicePtr<T> {
        self.words.resize(self.words.len().next_multiple_of(ALIGNED_WORDS), 0);
        let at = DevicePtr::at(self.base + 4 * self.words.len() as u64);
        self.words.extend_from_slice(values);
        at
    }
}

fn tile_words(tile: &PrefillTile) -> [u32; TILE_WORDS] {
    [tile.first_row, tile.rows, tile.first_position, tile.sequence].map(|word| word as u32)
}
