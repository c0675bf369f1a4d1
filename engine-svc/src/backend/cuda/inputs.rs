//! The rows of a forward, laid out as the device reads them.

use firstlight_cuda::arguments::{PrefillTile, RowSampling};
use firstlight_cuda::tiles;

use crate::backend::Chunk;
use crate::sample::Sampling;

/// Words (32 bits) of a row's sampling.
pub(super) const SAMPLING_WORDS: usize = size_of::<RowSampling>() / 4;

/// Where a decode row's token comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Token {
    /// The host has it.
    Known(u32),
    /// It was sampled in this row of the forward queued before.
    SampledIn(usize),
}

/// One row of a decode forward.
#[derive(Debug, Clone, Copy)]
pub struct DecodeRow<'a> {
    /// The token at `position`.
    pub token: Token,
    /// Where it stands in its sequence.
    pub position: usize,
    /// The sequence's block table, which covers `position`.
    pub blocks: &'a [u32],
    /// How the token after it is chosen.
    pub sampling: Sampling,
}

/// Where each column of decode rows lies in one static buffer, in words. The places do not depend on how many rows
/// a forward has, so that captured graphs can hold them; what forwards of few rows leave unused is at the end, so
/// that it need not be copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DecodeLayout {
    rows: usize,
    table_stride: usize,
}

impl DecodeLayout {
    /// For up to `rows` rows with `table_stride` blocks each.
    pub fn new(rows: usize, table_stride: usize) -> Self {
        // Keeps every column aligned to 16 bytes, whatever it holds.
        Self { rows: rows.next_multiple_of(4), table_stride }
    }

    /// Token ids, where the host has them.
    pub fn tokens(&self) -> usize {
        0
    }

    /// Rows of the forward before that have the token; −1 where the host has it.
    pub fn sources(&self) -> usize {
        self.rows
    }

    /// Positions.
    pub fn positions(&self) -> usize {
        2 * self.rows
    }

    /// Places in the KV pool.
    pub fn slots(&self) -> usize {
        3 * self.rows
    }

    /// Positions to attend to, the row's own included; 0 for padding.
    pub fn context(&self) -> usize {
        4 * self.rows
    }

    /// [`RowSampling`]s.
    pub fn sampling(&self) -> usize {
        5 * self.rows
    }

    /// Block tables, `table_stride` entries each.
    pub fn block_table(&self) -> usize {
        (5 + SAMPLING_WORDS) * self.rows
    }

    /// Entries of a row of the block table.
    pub fn table_stride(&self) -> usize {
        self.table_stride
    }

    /// Words that a forward of `rows` rows uses.
    pub fn words(&self, rows: usize) -> usize {
        self.block_table() + rows * self.table_stride
    }

    /// Words of the whole buffer.
    pub fn all_words(&self) -> usize {
        self.words(self.rows)
    }
}

/// The rows of a decode forward.
#[derive(Debug, Clone)]
pub struct DecodeInputs {
    layout: DecodeLayout,
    words: Vec<u32>,
    rows: usize,
    bucket: usize,
    longest: usize,
    scratch_block: u32,
}

impl DecodeInputs {
    /// No rows; padding rows will write to `scratch_block`, which no sequence has.
    pub fn new(layout: DecodeLayout, scratch_block: u32) -> Self {
        Self { layout, words: vec![0; layout.all_words()], rows: 0, bucket: 0, longest: 0, scratch_block }
    }

    /// Where columns lie.
    pub fn layout(&self) -> &DecodeLayout {
        &self.layout
    }

    /// Rows without padding.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Rows with padding.
    pub fn bucket(&self) -> usize {
        self.bucket
    }

    /// Positions that the row with the longest context attends to.
    pub fn longest(&self) -> usize {
        self.longest
    }

    /// What is to be copied to the device.
    pub fn words(&self) -> &[u32] {
        &self.words[..self.layout.words(self.bucket)]
    }

    /// No rows.
    pub fn clear(&mut self) {
        (self.rows, self.bucket, self.longest) = (0, 0, 0);
    }

    /// Adds a row.
    ///
    /// # Panics
    /// When there is no room, or its block table does not cover its position.
    pub fn push(&mut self, row: DecodeRow<'_>) {
        let blocks = &row.blocks[..=row.position / firstlight_cuda::kv::BLOCK_TOKENS];
        let (token, source) = match row.token {
            Token::Known(token) => (token, u32::MAX),
            Token::SampledIn(row) => (0, row as u32),
        };
        let at = self.rows;
        self.write(
            at,
            token,
            source,
            row.position as u32,
            slot(blocks, row.position),
            row.position as u32 + 1,
        );
        self.write_sampling(at, row_sampling(&row.sampling, row.position + 1));
        let stride = self.layout.table_stride;
        let table = self.layout.block_table() + at * stride;
        self.words[table..][..blocks.len()].copy_from_slice(blocks);
        self.rows += 1;
        self.bucket = self.rows;
        self.longest = self.longest.max(row.position + 1);
    }

    /// Adds padding rows: they attend to nothing and write to the scratch block.
    pub fn pad_to(&mut self, bucket: usize) {
        let scratch = self.scratch_block * firstlight_cuda::kv::BLOCK_TOKENS as u32;
        for at in self.rows..bucket {
            self.write(at, 0, u32::MAX, 0, scratch, 0);
            self.write_sampling(at, row_sampling(&Sampling::GREEDY, 0));
        }
        self.bucket = bucket;
    }

    fn write(&mut self, at: usize, token: u32, source: u32, position: u32, slot: u32, context: u32) {
        let layout = self.layout;
        let columns =
            [layout.tokens(), layout.sources(), layout.positions(), layout.slots(), layout.context()];
        for (column, value) in columns.into_iter().zip([token, source, position, slot, context]) {
            self.words[column + at] = value;
        }
    }

    fn write_sampling(&mut self, at: usize, sampling: RowSampling) {
        let place = self.layout.sampling() + at * SAMPLING_WORDS;
        self.words[place..][..SAMPLING_WORDS].copy_from_slice(&sampling.words());
    }
}

/// The rows of a forward over prompts.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PrefillInputs {
    /// Per row: token ids.
    pub tokens: Vec<u32>,
    /// Per row: positions.
    pub positions: Vec<u32>,
    /// Per row: places in the KV pool.
    pub slots: Vec<u32>,
    /// Rows in tiles of one chunk each.
    pub tiles: Vec<PrefillTile>,
    /// Per chunk: its block table, `table_stride` entries.
    pub block_table: Vec<u32>,
    /// Entries of a row of the block table.
    pub table_stride: usize,
    /// Rows whose logits are wanted: the last of each chunk that samples.
    pub logit_rows: Vec<u32>,
    /// How to choose from each of them.
    pub sampling: Vec<RowSampling>,
}

impl PrefillInputs {
    /// The rows of `chunks`, in blocks of `block_tokens`.
    pub fn new(chunks: &[Chunk<'_>], block_tokens: usize) -> Self {
        let blocks_of = |chunk: &Chunk<'_>| chunk.end().div_ceil(block_tokens);
        let mut inputs = Self {
            tiles: tiles::cut(chunks.iter().map(|chunk| (chunk.tokens.len(), chunk.start))),
            table_stride: chunks.iter().map(blocks_of).max().unwrap_or_default(),
            ..Self::default()
        };
        for chunk in chunks {
            inputs.tokens.extend_from_slice(chunk.tokens);
            inputs.positions.extend((chunk.start..chunk.end()).map(|position| position as u32));
            inputs.slots.extend((chunk.start..chunk.end()).map(|position| slot(chunk.blocks, position)));
            inputs.block_table.extend_from_slice(&chunk.blocks[..blocks_of(chunk)]);
            inputs.block_table.resize(inputs.block_table.len() + inputs.table_stride - blocks_of(chunk), 0);
            if let Some(sampling) = chunk.sample {
                inputs.logit_rows.push(inputs.tokens.len() as u32 - 1);
                inputs.sampling.push(row_sampling(sampling, chunk.end()));
            }
        }
        inputs
    }
}

fn slot(blocks: &[u32], position: usize) -> u32 {
    let tokens = firstlight_cuda::kv::BLOCK_TOKENS;
    blocks[position / tokens] * tokens as u32 + (position % tokens) as u32
}

/// The device's words for how to choose the token at `position`.
fn row_sampling(sampling: &Sampling, position: usize) -> RowSampling {
    RowSampling {
        temperature: sampling.temperature(),
        top_p: sampling.top_p(),
        min_p: sampling.min_p(),
        top_k: sampling.top_k(),
        seed: sampling.seed(),
        position: position as u32,
        reserved: 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAMPLED: Sampling = Sampling::GREEDY;

    #[test]
    fn columns_do_not_overlap_and_do_not_move_with_the_rows() {
        let layout = DecodeLayout::new(5, 7);
        let starts = [
            layout.tokens(),
            layout.sources(),
            layout.positions(),
            layout.slots(),
            layout.context(),
            layout.sampling(),
            layout.block_table(),
            layout.all_words(),
        ];
        let widths = [1, 1, 1, 1, 1, SAMPLING_WORDS, layout.table_stride()];
        for (pair, width) in starts.windows(2).zip(widths) {
            assert!(pair[1] - pair[0] >= 5 * width, "{starts:?}");
            assert!(pair[0].is_multiple_of(4), "aligned to 16 bytes: {starts:?}");
        }
    }

    #[test]
    fn a_row_is_where_the_layout_says() {
        let layout = DecodeLayout::new(4, 3);
        let mut inputs = DecodeInputs::new(layout, 99);
        inputs.push(DecodeRow { token: Token::Known(7), position: 0, blocks: &[5], sampling: SAMPLED });
        inputs.push(DecodeRow {
            token: Token::SampledIn(3),
            position: 33,
            blocks: &[8, 2, 6, 1],
            sampling: SAMPLED,
        });
        inputs.pad_to(4);
        let words = inputs.words();
        let column = |start: usize| &words[start..start + 4];
        assert_eq!(column(layout.tokens()), [7, 0, 0, 0]);
        assert_eq!(column(layout.sources()), [u32::MAX, 3, u32::MAX, u32::MAX]);
        assert_eq!(column(layout.positions()), [0, 33, 0, 0]);
        assert_eq!(column(layout.slots()), [80, 97, 99 * 16, 99 * 16]);
        assert_eq!(column(layout.context()), [1, 34, 0, 0]);
        assert_eq!(words[layout.block_table()], 5);
        assert_eq!(words[layout.block_table() + 3..][..3], [8, 2, 6]);
        assert_eq!((inputs.rows(), inputs.bucket(), inputs.longest()), (2, 4, 34));
        inputs.clear();
        assert_eq!((inputs.rows(), inputs.bucket(), inputs.longest()), (0, 0, 0));
    }

    #[test]
    fn few_rows_need_few_words() {
        let layout = DecodeLayout::new(256, 64);
        let mut inputs = DecodeInputs::new(layout, 0);
        inputs.push(DecodeRow { token: Token::Known(1), position: 3, blocks: &[0], sampling: SAMPLED });
        assert_eq!(inputs.words().len(), layout.block_table() + 64);
    }

    #[test]
    fn chunks_become_rows_tiles_and_tables() {
        let sampling = Sampling::new(0.5, 3, 0.9, 0.1, 11).unwrap();
        let first = Chunk { tokens: &[1, 2], start: 15, blocks: &[4, 9], sample: Some(&sampling) };
        let second = Chunk { tokens: &[3], start: 0, blocks: &[7, 7], sample: None };
        let inputs = PrefillInputs::new(&[first, second], 16);
        assert_eq!(inputs.tokens, [1, 2, 3]);
        assert_eq!(inputs.positions, [15, 16, 0]);
        assert_eq!(inputs.slots, [4 * 16 + 15, 9 * 16, 7 * 16]);
        assert_eq!((inputs.block_table.as_slice(), inputs.table_stride), (&[4, 9, 7, 0][..], 2));
        assert_eq!(inputs.logit_rows, [1]);
        let (temperature, top_k, position) = (0.5, 3, 17);
        let want =
            RowSampling { temperature, top_p: 0.9, min_p: 0.1, top_k, seed: 11, position, reserved: 0 };
        assert_eq!(inputs.sampling, [want]);
        assert_eq!(inputs.tiles.len(), 2);
    }
}
