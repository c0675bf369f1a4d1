//! RMSNorm and LayerNorm over rows. Statistics are summed in 16 fixed lanes, so a row's result
//! depends on that row alone.

use crate::isa::vectorised;
use crate::math::{LANES, reduce};
use crate::pool::Pool;
use crate::rows::Heads;

/// Root-mean-square norm of each row of `weight.len()` elements:
/// `out = x / sqrt(mean(x²) + eps) · weight` (Zhang and Sennrich 2019).
///
/// # Panics
/// If `x` and `out` are not the same whole number of rows.
pub fn rms_norm(pool: &Pool, x: &[f32], weight: &[f32], eps: f32, out: &mut [f32]) {
    assert_eq!(x.len(), out.len(), "input and output differ in length");
    let (isa, width) = (pool.isa(), weight.len());
    pool.for_rows(out, width, |index, out| {
        out.copy_from_slice(&x[index * width..][..width]);
        rms_row(isa, out, weight, eps);
    });
}

/// RMSNorm of each head in place, all with the same weight (the query and key norms of Qwen3).
///
/// # Panics
/// If the heads do not lie inside a row, or are not as wide as `weight`.
pub fn rms_norm_heads(pool: &Pool, data: &mut [f32], heads: Heads, weight: &[f32], eps: f32) {
    assert_eq!(heads.dim, weight.len(), "one weight per element of a head");
    let isa = pool.isa();
    pool.for_rows(data, heads.stride, |_, row| {
        for head in heads.of(row) {
            rms_row(isa, head, weight, eps);
        }
    });
}

/// Layer norm of each row of `weight.len()` elements:
/// `out = (x - mean) / sqrt(variance + eps) · weight + bias` (Ba et al. 2016).
///
/// # Panics
/// If `x` and `out` are not the same whole number of rows, or `bias` is not as long as `weight`.
pub fn layer_norm(pool: &Pool, x: &[f32], weight: &[f32], bias: Option<&[f32]>, eps: f32, out: &mut [f32]) {
    assert_eq!(x.len(), out.len(), "input and output differ in length");
    let (isa, width) = (pool.isa(), weight.len());
    assert!(bias.is_none_or(|bias| bias.len() == width), "one bias element per weight");
    pool.for_rows(out, width, |index, out| {
        out.copy_from_slice(&x[index * width..][..width]);
        layer_row(isa, out, weight, bias, eps);
    });
}

vectorised! {
    fn rms_row(row: &mut [f32], weight: &[f32], eps: f32) {
        let mean_square = sum(row, |x| x * x) / row.len() as f32;
        let scale = 1.0 / (mean_square + eps).sqrt();
        for (x, weight) in row.iter_mut().zip(weight) {
            *x = *x * scale * weight;
        }
    }
}

vectorised! {
    fn layer_row(row: &mut [f32], weight: &[f32], bias: Option<&[f32]>, eps: f32) {
        let mean = sum(row, |x| x) / row.len() as f32;
        for x in row.iter_mut() {
            *x -= mean;
        }
        let variance = sum(row, |x| x * x) / row.len() as f32;
        let scale = 1.0 / (variance + eps).sqrt();
        match bias {
            Some(bias) => {
                for ((x, weight), bias) in row.iter_mut().zip(weight).zip(bias) {
                    *x = *x * scale * weight + bias;
                }
            }
            None => {
                for (x, weight) in row.iter_mut().zip(weight) {
                    *x = *x * scale * weight;
                }
            }
        }
    }
}

/// The sum of `f(x)` over a row, in [`LANES`] interleaved partial sums.
#[inline(always)]
fn sum(row: &[f32], f: impl Fn(f32) -> f32) -> f32 {
    let mut lanes = [0.0f32; LANES];
    let chunks = row.chunks_exact(LANES);
    let rest = chunks.remainder();
    for chunk in chunks {
        for (lane, x) in lanes.iter_mut().zip(chunk) {
            *lane += f(*x);
        }
    }
    for (lane, x) in lanes.iter_mut().zip(rest) {
        *lane += f(*x);
    }
    reduce(lanes, |a, b| a + b)
}
