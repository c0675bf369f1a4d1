//! What a device can do: the operations that the models are written in.
//!
//! Activations are rows of `f32` in buffers that the device owns; a row belongs to one token of the forward. A row's
//! result does not depend on other rows.

use firstlight_kernels::rope::RopePairing;
use firstlight_kernels::rows::Heads;

use crate::weights::config::Norm;
use crate::weights::{Matrix, Weight};

/// A device that executes models.
pub trait Ops {
    /// Rows of activations of one width.
    type Buffer;
    /// A weight matrix with perhaps a bias.
    type Linear;
    /// A norm's scale, perhaps bias, and epsilon.
    type Norm;
    /// Rotation angles by position.
    type Rope;
    /// The rows of one forward: tokens, positions, places in the KV pool, which of them are sampled.
    type Step<'a>;

    /// Takes in matrices of equal inputs as one linear whose outputs lie side by side. `weight` names the first.
    fn linear(&mut self, weight: Weight, parts: &[Matrix<'_>], bias: Option<&[f32]>) -> Self::Linear;

    /// Takes in a norm.
    fn norm(&mut self, kind: Norm, scale: Vec<f32>, bias: Option<Vec<f32>>, eps: f32) -> Self::Norm;

    /// Prepares the angles of every position that the KV pool can hold, up to the context.
    fn rope(&mut self, pairing: RopePairing, inverse_frequencies: &[f64], context: usize) -> Self::Rope;

    /// A buffer of rows of `width` elements.
    fn buffer(&mut self, width: usize) -> Self::Buffer;

    /// `out = table[token]` for every row.
    fn embed(&self, table: &Self::Linear, step: &Self::Step<'_>, out: &mut Self::Buffer);

    /// `x += table[position]` for every row, `scratch` being as wide.
    fn add_positions(
        &self,
        table: &Self::Linear,
        step: &Self::Step<'_>,
        scratch: &mut Self::Buffer,
        x: &mut Self::Buffer,
    );

    /// `out = norm(x)`.
    fn normalize(&self, norm: &Self::Norm, x: &Self::Buffer, out: &mut Self::Buffer);

    /// Normalizes each of these heads of every row, in place.
    fn normalize_heads(&self, norm: &Self::Norm, heads: Heads, x: &mut Self::Buffer);

    /// `y = x·Wᵀ + b`.
    fn multiply(&self, weights: &Self::Linear, x: &Self::Buffer, y: &mut Self::Buffer);

    /// `y += x·Wᵀ + b`.
    fn multiply_add(&self, weights: &Self::Linear, x: &Self::Buffer, y: &mut Self::Buffer);

    /// Rotates these heads of every row by its position, in place.
    fn rotate(&self, rope: &Self::Rope, step: &Self::Step<'_>, heads: Heads, x: &mut Self::Buffer);

    /// Stores the keys and values in rows of `query | key | value`, then attends the queries to their sequences.
    fn attend(&mut self, layer: usize, step: &Self::Step<'_>, qkv: &Self::Buffer, out: &mut Self::Buffer);

    /// `out = silu(gate) · up` with `gate | up` in each row.
    fn silu_mul(&self, gate_up: &Self::Buffer, out: &mut Self::Buffer);

    /// GELU in its tanh form, in place.
    fn gelu_tanh(&self, x: &mut Self::Buffer);

    /// GELU exact, in place.
    fn gelu_erf(&self, x: &mut Self::Buffer);

    /// The rows whose logits are wanted, one after another.
    fn select(&self, step: &Self::Step<'_>, x: &Self::Buffer, out: &mut Self::Buffer);
}
