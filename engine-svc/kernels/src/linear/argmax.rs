//! Which output of a linear is largest, without writing the outputs: the greedy choice of a token.

use super::PackedLinear;
use super::pass::{Out, Pass};
use super::tile::{Outputs, PANEL};
use super::{Write, rows_of, rows_per_pass};
use crate::disjoint::SharedMut;
use crate::isa::vectorised;
use crate::math::largest;
use crate::pool::Pool;

/// The largest output so far, the lowest such.
#[derive(Clone, Copy)]
struct Largest {
    value: f32,
    index: u32,
}

impl Largest {
    const NONE: Largest = Largest { value: f32::NEG_INFINITY, index: 0 };

    /// Whichever order they come in, the lowest of equals stays.
    fn take(&mut self, other: Largest) {
        if other.value > self.value || (other.value == self.value && other.index < self.index) {
            *self = other;
        }
    }
}

impl PackedLinear {
    /// The index of each row's largest output, as [`PackedLinear::forward`] and [`argmax`](crate::elementwise::argmax)
    /// find it.
    ///
    /// # Panics
    /// If `x` does not hold one row for each of `out`.
    pub fn argmax(&self, pool: &Pool, x: &[f32], out: &mut [u32]) {
        let rows = rows_of(x, self.k);
        assert_eq!(rows, out.len(), "one output per row");
        let against = self.against(pool);
        let part = rows_per_pass(against.kernel.operand, rows, self.k);
        for (x, out) in x.chunks(part * self.k).zip(out.chunks_mut(part)) {
            Pass::prepare(pool, against, x, None, |pass| self.argmax_pass(pool, pass, out));
        }
    }

    fn argmax_pass(&self, pool: &Pool, pass: &Pass<'_>, out: &mut [u32]) {
        let (isa, rows) = (pool.isa(), out.len());
        let mut largest = vec![Largest::NONE; pool.threads() * rows];
        let of_threads = SharedMut::new(&mut largest);
        let begin = |thread: usize| {
            // SAFETY: each thread has its own part.
            (unsafe { of_threads.slice(thread * rows, rows) }, Outputs::ZERO)
        };
        pass.for_columns(pool, (self.n.div_ceil(PANEL), PANEL), begin, |(largest, outputs), panel| {
            let first = panel * PANEL;
            let columns = (self.n - first).min(PANEL);
            for (index, rows) in pass.tiles().enumerate() {
                let out = Out { start: outputs.start(), stride: PANEL, columns: PANEL, write: Write::Set };
                // SAFETY: a tile has at most so many rows, and `for_columns` began a session.
                unsafe { pass.compute(panel, index, rows.clone(), &out) };
                for (row, outputs) in rows.clone().zip(outputs.rows(rows.len())) {
                    let (value, column) = largest_of(isa, &outputs[..columns]);
                    largest[row].take(Largest { value, index: first as u32 + column });
                }
            }
        });
        for (row, out) in out.iter_mut().enumerate() {
            let mut best = Largest::NONE;
            largest.iter().skip(row).step_by(rows).for_each(|other| best.take(*other));
            *out = best.index;
        }
    }
}

vectorised! {
    /// The largest value and the lowest place that has it; NaN is never the largest. Of nothing above negative
    /// infinity: that and 0.
    fn largest_of(values: &[f32]) -> (f32, u32) {
        let max = largest(values);
        (max, values.iter().position(|value| *value == max).unwrap_or(0) as u32)
    }
}
