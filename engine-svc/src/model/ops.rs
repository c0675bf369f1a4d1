//! What a device can do: the operations that the models are written in.
//!
//! Activations are rows in buffers that the device owns; a row belongs to one token of the forward. A row's result does
//! not depend on other rows.

use firstlight_kernels::rope::RopePairing;
use firstlight_kernels::rows::Heads;

use crate::weights::config::Norm;
use crate::weights::{Matrix, Weight};

/// What a buffer holds; devices that compute in 16 bits keep some of it in 32.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// The residual stream, a row for each token.
    Residual,
    /// What goes into and comes out of a linear, a row for each token.
    Hidden,
    /// The same, a row for each token whose logits are wanted.
    Selected,
    /// Logits.
    Logits,
}

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
    fn buffer(&mut self, role: Role, width: usize) -> Self::Buffer;

    /// `out = tokens[token] + positions[position]` for every row, `scratch` being as wide.
    fn embed(
        &mut self,
        tokens: &Self::Linear,
        positions: Option<&Self::Linear>,
        step: &Self::Step<'_>,
        scratch: &mut Self::Buffer,
        out: &mut Self::Buffer,
    );

    /// `out = norm(x)`.
    fn normalize(&mut self, norm: &Self::Norm, x: &mut Self::Buffer, out: &mut Self::Buffer);

    /// `out = norm(x)` of the rows whose logits are wanted, one after another, `scratch` being as wide.
    fn normalize_selected(
        &mut self,
        norm: &Self::Norm,
        step: &Self::Step<'_>,
        x: &mut Self::Buffer,
        scratch: &mut Self::Buffer,
        out: &mut Self::Buffer,
    );

    /// Normalizes each of these heads of every row, in place.
    fn normalize_heads(&mut self, norm: &Self::Norm, heads: Heads, x: &mut Self::Buffer);

    /// `y = x·Wᵀ + b`.
    fn multiply(&mut self, weights: &Self::Linear, x: &Self::Buffer, y: &mut Self::Buffer);

    /// `y = x·Wᵀ + b` as the last of a forward: the logits. Where the step only asks which are largest, a device may
    /// find that instead.
    fn logits(
        &mut self,
        weights: &Self::Linear,
        x: &Self::Buffer,
        _step: &Self::Step<'_>,
        y: &mut Self::Buffer,
    ) {
        self.multiply(weights, x, y);
    }

    /// `y = norm(x)·Wᵀ + b`, `normed` being as wide as `x`.
    fn normalize_multiply(
        &mut self,
        norm: &Self::Norm,
        weights: &Self::Linear,
        x: &mut Self::Buffer,
        normed: &mut Self::Buffer,
        y: &mut Self::Buffer,
    ) {
        self.normalize(norm, x, normed);
        self.multiply(weights, normed, y);
    }

    /// `y = gelu(x·Wᵀ + b)`, GELU in its tanh form.
    fn multiply_gelu_tanh(&mut self, weights: &Self::Linear, x: &Self::Buffer, y: &mut Self::Buffer) {
        self.multiply(weights, x, y);
        self.gelu_tanh(y);
    }

    /// `x += (silu(gate) · up)·Wᵀ + b` with `gate | up` side by side in what `gate_up` makes of `norm(x)`; the buffers
    /// between have room for that, for gate and up, and for their product.
    fn feed_gated(
        &mut self,
        norm: &Self::Norm,
        (gate_up, down): (&Self::Linear, &Self::Linear),
        x: &mut Self::Buffer,
        between: [&mut Self::Buffer; 3],
    ) {
        feed_gated_in_parts(self, norm, (gate_up, down), x, between);
    }

    /// `y += x·Wᵀ + b`, at the latest when `y` is normalized.
    fn multiply_add(&mut self, weights: &Self::Linear, x: &Self::Buffer, y: &mut Self::Buffer);

    /// Rotates the queries and keys in rows of `query | key | value` by their positions, in place, stores keys and
    /// values, then attends the queries to their sequences.
    fn attend(
        &mut self,
        layer: usize,
        rope: Option<&Self::Rope>,
        step: &Self::Step<'_>,
        qkv: &mut Self::Buffer,
        out: &mut Self::Buffer,
    );

    /// `out = silu(gate) · up` with `gate | up` in each row.
    fn silu_mul(&mut self, gate_up: &Self::Buffer, out: &mut Self::Buffer);

    /// GELU in its tanh form, in place.
    fn gelu_tanh(&mut self, x: &mut Self::Buffer);

    /// GELU exact, in place.
    fn gelu_erf(&mut self, x: &mut Self::Buffer);
}

/// [`Ops::feed_gated`] by the operations that it consists of.
pub fn feed_gated_in_parts<D: Ops + ?Sized>(
    ops: &mut D,
    norm: &D::Norm,
    (gate_up, down): (&D::Linear, &D::Linear),
    x: &mut D::Buffer,
    [normed, gated, activated]: [&mut D::Buffer; 3],
) {
    ops.normalize_multiply(norm, gate_up, x, normed, gated);
    ops.silu_mul(gated, activated);
    ops.multiply_add(down, activated, x);
}
