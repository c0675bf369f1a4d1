//! RMSNorm and LayerNorm over rows. Statistics are summed in 16 fixed lanes, so a row's result
//! depends on that row alone.

use crate::isa::{Isa, vectorised};
use crate::kv::MAX_HEAD_DIM;
use crate::math::{LANES, reduce};
use crate::pool::Pool;
use crate::rows::Heads;

/// A norm's weights.
#[derive(Debug, Clone)]
pub struct Norm {
    kind: Kind,
    scale: Vec<f32>,
    bias: Option<Vec<f32>>,
    eps: f32,
}

#[derive(Debug, Clone, Copy)]
enum Kind {
    Rms,
    Layer,
}

impl Norm {
    /// Root-mean-square norm, `x / sqrt(mean(x²) + eps) · scale` (Zhang and Sennrich 2019).
    pub fn rms(scale: Vec<f32>, eps: f32) -> Norm {
        Norm { kind: Kind::Rms, scale, bias: None, eps }
    }

    /// Layer norm, `(x - mean) / sqrt(variance + eps) · scale + bias` (Ba et al. 2016).
    ///
    /// # Panics
    /// If `bias` is not as long as `scale`.
    pub fn layer(scale: Vec<f32>, bias: Option<Vec<f32>>, eps: f32) -> Norm {
        assert!(bias.as_ref().is_none_or(|bias| bias.len() == scale.len()), "one bias element per weight");
        Norm { kind: Kind::Layer, scale, bias, eps }
    }

    /// Elements of a row.
    pub fn width(&self) -> usize {
        self.scale.len()
    }

    /// Normalizes each row of `x` into `out`.
    ///
    /// # Panics
    /// If the two are not the same whole number of rows.
    pub fn forward(&self, pool: &Pool, x: &[f32], out: &mut [f32]) {
        assert_eq!(x.len(), out.len(), "input and output differ in length");
        let (isa, width) = (pool.isa(), self.width());
        pool.for_rows(out, width, |index, out| self.row(isa, &x[index * width..][..width]).write(0, out));
    }

    /// Normalizes each of these heads in place (the query and key norms of Qwen3).
    ///
    /// # Panics
    /// If the heads do not lie inside a row, are not as wide as the weights, or wider than [`MAX_HEAD_DIM`].
    pub fn forward_heads(&self, pool: &Pool, data: &mut [f32], heads: Heads) {
        assert_eq!(heads.dim, self.width(), "one weight per element of a head");
        let isa = pool.isa();
        pool.for_rows(data, heads.stride, |_, row| {
            for head in heads.of(row) {
                let mut copy = [0.0; MAX_HEAD_DIM];
                let copy = &mut copy[..head.len()];
                copy.copy_from_slice(head);
                self.row(isa, copy).write(0, head);
            }
        });
    }

    /// A row to be normalized.
    pub(crate) fn row<'a>(&'a self, isa: Isa, x: &'a [f32]) -> NormedRow<'a> {
        let (mean, factor) = self.statistics(isa, x);
        NormedRow { norm: self, isa, x, mean, factor }
    }

    /// What is subtracted from each element of a row, and what the difference is multiplied with.
    fn statistics(&self, isa: Isa, x: &[f32]) -> (f32, f32) {
        let mean = match self.kind {
            Kind::Rms => 0.0,
            Kind::Layer => sum(isa, x) / x.len() as f32,
        };
        let mean_square = sum_of_squares(isa, x, mean) / x.len() as f32;
        (mean, 1.0 / (mean_square + self.eps).sqrt())
    }
}

/// A row whose statistics are known.
pub(crate) struct NormedRow<'a> {
    norm: &'a Norm,
    isa: Isa,
    x: &'a [f32],
    mean: f32,
    factor: f32,
}

impl NormedRow<'_> {
    /// Writes its normalized elements `first..`, as many as there is room for.
    pub(crate) fn write(&self, first: usize, out: &mut [f32]) {
        let columns = first..first + out.len();
        let bias = self.norm.bias.as_ref().map(|bias| &bias[columns.clone()]);
        let scale = &self.norm.scale[columns.clone()];
        normalize(self.isa, &self.x[columns], scale, bias, self.mean, self.factor, out);
    }
}

vectorised! {
    fn normalize(x: &[f32], scale: &[f32], bias: Option<&[f32]>, mean: f32, factor: f32, out: &mut [f32]) {
        for ((out, x), scale) in out.iter_mut().zip(x).zip(scale) {
            *out = (x - mean) * factor * scale;
        }
        if let Some(bias) = bias {
            for (out, bias) in out.iter_mut().zip(bias) {
                *out += bias;
            }
        }
    }
}

vectorised! {
    fn sum(row: &[f32]) -> f32 {
        sum_in_lanes(row, |x| x)
    }
}

vectorised! {
    fn sum_of_squares(row: &[f32], mean: f32) -> f32 {
        sum_in_lanes(row, |x| (x - mean) * (x - mean))
    }
}

/// The sum of `f(x)` over a row, in [`LANES`] interleaved partial sums.
#[inline(always)]
fn sum_in_lanes(row: &[f32], f: impl Fn(f32) -> f32) -> f32 {
    let mut lanes = [0.0f32; LANES];
    let (whole, rest) = row.as_chunks::<LANES>();
    for chunk in whole {
        for (lane, x) in lanes.iter_mut().zip(chunk) {
            *lane += f(*x);
        }
    }
    for (lane, x) in lanes.iter_mut().zip(rest) {
        *lane += f(*x);
    }
    reduce(lanes, |a, b| a + b)
}
