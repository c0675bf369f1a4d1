//! What the backend asks of a GPU with the model on it.
//!
//! Work is queued and runs in the order in which it was queued; only [`Device::tokens`] waits.

use firstlight_cuda::board::BoardError;

use super::inputs::{DecodeInputs, PrefillInputs};

/// Names a forward; they count up by one. At most three have tokens that nobody has asked for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// The device failed; nothing can be queued any more.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct DeviceError(pub String);

impl From<BoardError> for DeviceError {
    fn from(error: BoardError) -> Self {
        Self(error.0)
    }
}

/// What a forward brought.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sampled {
    /// A token for each row that asked, padding excluded.
    pub tokens: Vec<u32>,
    /// How long the forward took, by the device's own clock, ns.
    pub device_ns: u64,
}

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

    /// Waits for a forward and gives what it brought, once.
    ///
    /// # Errors
    /// When the forward failed.
    fn tokens(&mut self, ticket: Ticket) -> Result<Sampled, DeviceError>;

    /// Queues a copy of block `from` over block `to`, keys and values of all layers.
    ///
    /// # Errors
    /// When it cannot be queued.
    fn copy_block(&mut self, from: u32, to: u32) -> Result<(), DeviceError>;
}
