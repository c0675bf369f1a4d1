//! Row gathers, residual addition and the greedy choice.

use crate::disjoint::SharedMut;
use crate::pool::Pool;

/// `y += x`.
///
/// # Panics
/// If the two differ in length.
pub fn add(pool: &Pool, y: &mut [f32], x: &[f32]) {
    assert_eq!(y.len(), x.len(), "operands differ in length");
    let chunk = y.len().div_ceil(pool.threads()).max(1024);
    let whole = y.len() / chunk * chunk;
    let (y_body, y_rest) = y.split_at_mut(whole);
    let (x_body, x_rest) = x.split_at(whole);
    if !y_body.is_empty() {
        pool.for_rows(y_body, chunk, |index, y| add_slice(y, &x_body[index * chunk..][..chunk]));
    }
    add_slice(y_rest, x_rest);
}

fn add_slice(y: &mut [f32], x: &[f32]) {
    for (y, x) in y.iter_mut().zip(x) {
        *y += x;
    }
}

/// Copies row `ids[i]` of `table[.., width]` to row `i` of `out`: embeddings, and the rows whose
/// logits are wanted.
///
/// # Panics
/// If an id is outside the table, or `out` has not one row per id.
pub fn gather(pool: &Pool, table: &[f32], width: usize, ids: &[u32], out: &mut [f32]) {
    assert_eq!(out.len(), ids.len() * width, "one output row per id");
    pool.for_rows(out, width, |index, out| {
        out.copy_from_slice(&table[ids[index] as usize * width..][..width]);
    });
}

/// As [`gather`], adding to `out` instead of overwriting it: learned position embeddings.
///
/// # Panics
/// As [`gather`].
pub fn gather_add(pool: &Pool, table: &[f32], width: usize, ids: &[u32], out: &mut [f32]) {
    assert_eq!(out.len(), ids.len() * width, "one output row per id");
    pool.for_rows(out, width, |index, out| {
        add_slice(out, &table[ids[index] as usize * width..][..width]);
    });
}

/// The index of each row's largest element, the lowest such; NaN is never the largest. A row with
/// nothing above negative infinity gives 0.
///
/// # Panics
/// If `out` has not one element per row of `width`.
pub fn argmax(pool: &Pool, logits: &[f32], width: usize, out: &mut [u32]) {
    assert_eq!(logits.len(), out.len() * width, "one output per row");
    let out = SharedMut::new(out);
    pool.split(logits.len() / width.max(1), width, |range| {
        for index in range {
            let best = argmax_row(&logits[index * width..][..width]);
            // SAFETY: `split` gives each index to one thread only.
            unsafe { out.slice(index, 1)[0] = best };
        }
    });
}

fn argmax_row(row: &[f32]) -> u32 {
    let mut best = (0, f32::NEG_INFINITY);
    for (index, &value) in row.iter().enumerate() {
        if value > best.1 {
            best = (index as u32, value);
        }
    }
    best.0
}
