//! Many rows, of which each thread takes some at a time: what comes between two linears never leaves its core.

use std::ops::Range;

use super::ELEMENTS_PER_PASS;
use super::operand::Operand;
use super::tile;
use crate::pool::Pool;

/// The fewest rows that make it worth reading all weights.
const MIN_ROWS: usize = 128;

/// More of them would not stay in a core's cache.
const MAX_ROWS: usize = 256;

/// Parts for each thread, where they are neither too small nor too large.
const PARTS: usize = 4;

/// With fewer, the others would wait for the slowest thread for too long.
const MIN_PARTS: usize = 3;

/// How many rows a thread takes at a time, `widest` elements each; nothing where all threads share in each row
/// instead: there are few, or so wide that they would not stay in its cache, or the kernel gains nothing.
pub(super) fn rows_apart(pool: &Pool, operand: Operand, rows: usize, widest: usize) -> Option<usize> {
    if !operand.outruns_sharing() {
        return None;
    }
    let threads = pool.threads();
    let each = (rows / (PARTS * threads)).next_multiple_of(tile::MAX_ROWS).clamp(MIN_ROWS, MAX_ROWS);
    (threads > 1 && rows >= MIN_PARTS * MIN_ROWS * threads && each * widest <= ELEMENTS_PER_PASS)
        .then_some(each)
}

/// Calls `job(pool, part)` for parts of `0..rows`, `each` long; the pool is a thread on its own.
pub(super) fn for_parts(pool: &Pool, rows: usize, each: usize, job: impl Fn(&Pool, Range<usize>) + Sync) {
    pool.share_apart(rows.div_ceil(each), |pool, index| {
        job(pool, index * each..rows.min((index + 1) * each));
    });
}
