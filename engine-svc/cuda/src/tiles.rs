//! The rows of a prefill forward in tiles of one sequence each.

use crate::arguments::PrefillTile;
use crate::launch::PREFILL_TILE_ROWS;

/// Cuts each chunk `(rows, first position)`, whose rows follow one another, into tiles. The row of the block table
/// is the chunk's place in the sequence of chunks.
pub fn cut(chunks: impl IntoIterator<Item = (usize, usize)>) -> Vec<PrefillTile> {
    let mut tiles = Vec::new();
    let mut first_row = 0;
    for (sequence, (rows, first_position)) in chunks.into_iter().enumerate() {
        for from in (0..rows).step_by(PREFILL_TILE_ROWS) {
            tiles.push(PrefillTile {
                first_row: (first_row + from) as i32,
                rows: (rows - from).min(PREFILL_TILE_ROWS) as i32,
                first_position: (first_position + from) as i32,
                sequence: sequence as i32,
            });
        }
        first_row += rows;
    }
    tiles
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tile_holds_rows_of_one_sequence() {
        let tile = |first_row, rows, first_position, sequence| PrefillTile {
            first_row,
            rows,
            first_position,
            sequence,
        };
        let want = [tile(0, 5, 0, 0), tile(5, 64, 16, 1), tile(69, 6, 80, 1), tile(75, 64, 3, 2)];
        assert_eq!(cut([(5, 0), (70, 16), (64, 3)]), want);
    }
}
