//! What the backend asks of a GPU with the model on it.
//!
//! Work is queued and runs in the order in which it was queued; only [`Device::tokens`] waits.

use super::inputs::{DecodeInputs, PrefillInputs};

/// Names a forward; they count up by one. At most two have tokens that nobody has asked for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// The device failed; nothing can be queued any more.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct DeviceError(pub String);

/// A GPU with the model, the KV pool and the buffers of its forwards.
pub trait Device: Send {
    /// Queues a decode forward over the rows of `inputs`, a bucket. Each row's token is sampled; rows of the next
    /// forward can name it as [`super::inputs::Token::SampledIn`].
    ///
    /// # Errors
    /// When it cannot be queued.
    fn decode(&mut self, ticket: Ticket, inputs: &DecodeInputs) -> Result<(), DeviceError>;

    /// Queues a forward over rows of prompts. A token is sampled for each of `inputs.logit_rows`.
    ///
    /// # Errors
    /// When it cannot be queued.
    fn prefill(&mut self, ticket: Ticket, inputs: &PrefillInputs) -> Result<(), DeviceError>;

    /// Waits for a forward and gives its tokens, padding excluded, once.
    ///
    /// # Errors
    /// When the forward failed.
    fn tokens(&mut self, ticket: Ticket) -> Result<Vec<u32>, DeviceError>;

    /// Queues a copy of block `from` over block `to`, keys and values of all layers.
    fn copy_block(&mut self, from: u32, to: u32);
}
