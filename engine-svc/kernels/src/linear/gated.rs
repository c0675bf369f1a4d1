//! Gate and up of a gated feed-forward block in one go: `out = silu(x · Gᵀ) · (x · Uᵀ)`, tile by tile, so that what
//! comes out of the two linears never leaves the first-level cache.

use std::mem::replace;
use std::ops::Range;

use super::apart::{for_parts, rows_apart};
use super::operand::Operand;
use super::pass::{Out, Pass};
use super::strips::{Gated, STRIP, StripOutputs, StripPair, StripsKernel, StripsOut, Waiting};
use super::tile::{Outputs, PANEL};
use super::{PackedLinear, WeightFormat, Write, rows_of, rows_per_pass};
use crate::activation::silu_mul_row;
use crate::disjoint::SharedMut;
use crate::norm::Norm;
use crate::pool::Pool;

/// Two weight matrices `[features, k]` (SwiGLU, Shazeer 2020), in the order the kernels read them.
#[derive(Debug)]
pub struct GatedLinear {
    features: usize,
    /// Gate and then up, each padded with zeros to whole panels.
    both: PackedLinear,
}

impl GatedLinear {
    /// Packs twice `features` rows of `k` weights, those of the gate first, as [`PackedLinear::pack`] does; a bias is
    /// as long.
    ///
    /// # Panics
    /// As [`PackedLinear::pack`].
    pub fn pack<F>(
        pool: &Pool,
        format: WeightFormat,
        (features, k): (usize, usize),
        bias: Option<&[f32]>,
        fill: F,
    ) -> GatedLinear
    where
        F: Fn(usize, &mut [f32]) + Sync,
    {
        let (bias, fill) = (spread(bias, features), with_padding(features, fill));
        let both = PackedLinear::pack(pool, format, (2 * padded(features), k), bias.as_deref(), fill);
        GatedLinear { features, both }
    }

    /// Packs rows that are already in one of the block formats, as [`PackedLinear::pack_blocks`] does.
    ///
    /// # Panics
    /// As [`PackedLinear::pack_blocks`].
    pub fn pack_blocks<F>(
        pool: &Pool,
        format: WeightFormat,
        (features, k): (usize, usize),
        bias: Option<&[f32]>,
        fill: F,
    ) -> GatedLinear
    where
        F: Fn(usize, &mut [u8]) + Sync,
    {
        let (bias, fill) = (spread(bias, features), with_padding(features, fill));
        let both = PackedLinear::pack_blocks(pool, format, (2 * padded(features), k), bias.as_deref(), fill);
        GatedLinear { features, both }
    }

    /// Output width.
    pub fn features(&self) -> usize {
        self.features
    }

    /// How the weights are held.
    pub fn format(&self) -> WeightFormat {
        self.both.format()
    }

    /// Bytes the packed weights occupy, padding included.
    pub fn bytes(&self) -> usize {
        self.both.bytes()
    }

    /// Computes `out[M, features]` from `x[M, K]`, for any M: the same bits as the two linears and
    /// [`silu_mul`](crate::activation::silu_mul).
    ///
    /// # Panics
    /// If the two do not hold the same whole number of rows.
    pub fn forward(&self, pool: &Pool, x: &[f32], out: &mut [f32]) {
        let features = self.features;
        self.both.in_passes(pool, (x, None), (out, features), &|pool, pass, out| {
            let out = SharedMut::new(out);
            self.pass(pool, pass, |row, first, gated| {
                // SAFETY: no other tile covers these outputs.
                unsafe { out.slice(row * features + first, gated.len()) }.copy_from_slice(gated);
            });
        });
    }

    /// The feed-forward block: adds to each row of `residual` what `down` makes of [`GatedLinear::forward`] of the
    /// normalized row; `between` is as much memory as that takes, in rows of `residual` and of features. The same bits
    /// as one after the other.
    ///
    /// # Panics
    /// If they do not hold the same whole number of rows, or the widths do not fit.
    pub fn feed(
        &self,
        pool: &Pool,
        norm: &Norm,
        down: &PackedLinear,
        (normed, activated): (&mut [f32], &mut [f32]),
        residual: &mut [f32],
    ) {
        let (k, features) = (self.both.inputs(), self.features);
        assert_eq!(
            (norm.width(), down.inputs(), down.outputs()),
            (k, features, k),
            "widths of a feed-forward block"
        );
        let (both, down_against) = (self.both.against(pool), down.against(pool));
        let (input, operand) = (both.kernel.operand, down_against.kernel.operand);
        let rows = rows_of(residual, k);
        if let Some(each) = rows_apart(pool, operand, rows, features) {
            let [normed, activated, residual] = [normed, activated, residual].map(SharedMut::new);
            return for_parts(pool, rows, each, |pool, part| {
                // SAFETY: each row is in one part.
                let (normed, activated, residual) = unsafe {
                    (normed.rows(&part, k), activated.rows(&part, features), residual.rows(&part, k))
                };
                self.feed(pool, norm, down, (normed, activated), residual);
            });
        }
        if !(input.takes_columns() && operand.takes_columns()) {
            norm.forward(pool, residual, normed);
            self.forward(pool, normed, activated);
            return down.forward(pool, activated, residual, Write::Add);
        }
        let part = rows_per_pass(operand, rows, features);
        for residual in residual.chunks_mut(part * k) {
            let rows = residual.len() / k;
            let bytes = input.bytes(rows, k);
            pool.with_scratch(bytes + operand.bytes(rows, features), |scratch| {
                let (prepared, activated) = scratch.split_at_mut(bytes);
                let pass = Pass::new(both, input.prepare_normed(pool, residual, norm, prepared), rows);
                let place = (activated.as_ptr(), operand.row_bytes(features));
                let activated = SharedMut::new(activated);
                match pass.strips_kernel() {
                    Some(kernel) if operand.takes_gated(features) => {
                        self.pass_in_strips(pool, &pass, kernel, (operand, &activated));
                    }
                    _ => self.pass(pool, &pass, |row, first, gated| {
                        // SAFETY: no other tile covers these columns.
                        unsafe { operand.put(&activated, features, row, first, gated) };
                    }),
                }
                down.pass(pool, &Pass::new(down_against, place, rows), residual, Write::Add);
            });
        }
    }

    /// Calls `put(row, first, values)` with the outputs of each row from column `first` on, a panel at a time.
    fn pass(&self, pool: &Pool, pass: &Pass<'_>, put: impl Fn(usize, usize, &[f32]) + Sync) {
        let (isa, panels) = (pool.isa(), self.features.div_ceil(PANEL));
        pass.for_columns(
            pool,
            (panels, 2 * PANEL),
            |_| [Outputs::ZERO; 3],
            |[gate, up, gated], panel| {
                let first = panel * PANEL;
                let columns = (self.features - first).min(PANEL);
                for (index, rows) in pass.tiles().enumerate() {
                    for (to, panel) in [(&mut *gate, panel), (&mut *up, panels + panel)] {
                        let out = Out { start: to.start(), stride: PANEL, columns: PANEL, write: Write::Set };
                        // SAFETY: a tile has at most so many rows, and `for_columns` began a session.
                        unsafe { pass.compute(panel, index, rows.clone(), &out) };
                    }
                    let (gate, up) =
                        (gate.rows(rows.len()).as_flattened(), up.rows(rows.len()).as_flattened());
                    silu_mul_row(isa, gate, up, gated.rows_mut(rows.len()).as_flattened_mut());
                    for (row, gated) in rows.clone().zip(gated.rows(rows.len())) {
                        put(row, first, &gated[..columns]);
                    }
                }
            },
        );
    }

    /// Writes the operand of the next linear at `activated`. Outputs of gate and up are activated while the next ones
    /// are computed, the former in vectors, the latter in tiles.
    fn pass_in_strips(
        &self,
        pool: &Pool,
        pass: &Pass<'_>,
        kernel: StripsKernel,
        (operand, activated): (Operand, &SharedMut<'_, u8>),
    ) {
        let (features, up_from) = (self.features, padded(self.features) / STRIP);
        let strips = features / STRIP;
        pass.for_columns(
            pool,
            (strips, 2 * STRIP),
            |_| (Waiting::EMPTY, [StripOutputs::ZERO; 2]),
            |(waiting, outputs), strip| {
                let [gate, up] = outputs.each_mut().map(StripOutputs::start);
                let place =
                    |_: &Range<usize>| StripsOut { starts: [(gate, STRIP), (up, STRIP)], stride: STRIP };
                let pair_at = |strip: usize| [strip, up_from + strip];
                let pairs = (pair_at(strip), pair_at((strip + 1).min(strips - 1)));
                let mut pending = Gated::NONE;
                pass.over_strips(pairs, Write::Set, waiting, place, |rows, pair| {
                    let pair = StripPair { gated: replace(&mut pending, Gated::NONE), ..pair };
                    // SAFETY: the thread's own outputs, and `for_columns` began a session.
                    unsafe { kernel(&pair) };
                    if pair.ends {
                        pending = operand.gated((gate, up), rows, activated, features, strip * STRIP);
                    }
                });
                // SAFETY: no other strip covers these columns.
                unsafe { operand.put_gated(&pending) };
            },
        );
    }
}

fn padded(features: usize) -> usize {
    features.next_multiple_of(PANEL)
}

/// Which row comes to row `index` of both, if it is not padding.
fn source(index: usize, features: usize) -> Option<usize> {
    let (half, place) = (index / padded(features), index % padded(features));
    (place < features).then_some(half * features + place)
}

/// Writes the rows of both with their padding, zeros.
fn with_padding<T: Copy + Default>(
    features: usize,
    fill: impl Fn(usize, &mut [T]) + Sync,
) -> impl Fn(usize, &mut [T]) + Sync {
    move |index, row| match source(index, features) {
        Some(index) => fill(index, row),
        None => row.fill(T::default()),
    }
}

/// A bias with the padding of the rows.
fn spread(bias: Option<&[f32]>, features: usize) -> Option<Vec<f32>> {
    bias.map(|bias| {
        assert_eq!(bias.len(), 2 * features, "one bias element per output");
        let rows = 0..2 * padded(features);
        rows.map(|index| source(index, features).map_or(0.0, |index| bias[index])).collect()
    })
}
