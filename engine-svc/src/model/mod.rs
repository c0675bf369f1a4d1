//! The model, written once over the operations of a device.
//!
//! * [`ops`]: what a device can do
//! * [`decoder`]: GPT-2 and the Llama family in those operations
//! * [`load`]: weights from a source onto a device

pub mod decoder;
pub mod load;
pub mod ops;

pub use decoder::Decoder;
pub use ops::Ops;
