//! What kernels and multiplications run on: a GPU, or the emulation of one.
//!
//! Work is queued and runs in the order in which it was queued; only [`Board::wait`] waits. Addresses are of memory
//! from [`Board::alloc`], which lives as long as the board.

use crate::arguments::Arguments;
use crate::launch::Launch;

/// The board failed; nothing can be queued any more.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct BoardError(pub String);

/// `out = in · weightᵀ + bias`, rows of 16-bit numbers; with `gelu_tanh` the GELU of that, in its tanh form.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Product {
    /// `[rows][outputs]`, in 32 bits with `wide_out`.
    pub out: u64,
    /// Whether `out` is of 32-bit floats.
    pub wide_out: bool,
    /// `[rows][inputs]`.
    pub input: u64,
    /// `[outputs][inputs]`.
    pub weight: u64,
    /// `[outputs]`; not with `wide_out`.
    pub bias: Option<u64>,
    /// Only with a bias.
    pub gelu_tanh: bool,
    /// Rows.
    pub rows: usize,
    /// Columns of the output.
    pub outputs: usize,
    /// Columns of the input.
    pub inputs: usize,
}

/// A GPU with the kernels for one number format and head dimension.
pub trait Board: Send {
    /// Work that was recorded and can be queued again, as it is.
    type Graph: Send;
    /// Memory of the host that the board copies by itself.
    type Pinned: Send;
    /// A place in the queue.
    type Event: Send;

    /// Name and architecture, for the log.
    fn describe(&self) -> String;

    /// Blocks of a kernel that run at once, if each had a multiprocessor.
    fn processors(&self) -> usize;

    /// Bytes of memory: free, and in all.
    ///
    /// # Errors
    /// When the board failed.
    fn memory(&self) -> Result<(u64, u64), BoardError>;

    /// Makes the board usable on this thread.
    ///
    /// # Errors
    /// When the board failed.
    fn use_here(&mut self) -> Result<(), BoardError>;

    /// `bytes` of memory, whatever is in them.
    ///
    /// # Errors
    /// When there is not enough.
    fn alloc(&mut self, bytes: usize) -> Result<u64, BoardError>;

    /// Writes to memory that nothing queued uses. What is queued later sees it once [`Board::synchronize`] was called:
    /// the copy need not be over before.
    ///
    /// # Errors
    /// When the board failed.
    ///
    /// # Safety
    /// There is memory for `bytes` at `to`.
    unsafe fn write(&mut self, to: u64, bytes: &[u8]) -> Result<(), BoardError>;

    /// Waits for everything that was written or queued.
    ///
    /// # Errors
    /// When any of it failed.
    fn synchronize(&mut self) -> Result<(), BoardError>;

    /// Queues a kernel.
    ///
    /// # Errors
    /// When it cannot be launched so.
    ///
    /// # Safety
    /// The arguments are those of the kernel, and its addresses those of memory as large as it reads and writes.
    unsafe fn launch<A: Arguments>(&mut self, launch: &Launch, arguments: &A) -> Result<(), BoardError>;

    /// Queues a multiplication.
    ///
    /// # Errors
    /// When it cannot be queued.
    ///
    /// # Safety
    /// The addresses are those of memory as large as the shapes say.
    unsafe fn multiply(&mut self, product: &Product) -> Result<(), BoardError>;

    /// Queues a copy of `len` bytes.
    ///
    /// # Errors
    /// When it cannot be queued.
    ///
    /// # Safety
    /// There are `len` bytes in both places, and they do not overlap.
    unsafe fn copy(&mut self, from: u64, to: u64, len: usize) -> Result<(), BoardError>;

    /// `len` bytes of the host.
    ///
    /// # Errors
    /// When it has not enough.
    fn pinned(&mut self, len: usize) -> Result<Self::Pinned, BoardError>;

    /// Fills the beginning of `from` with `bytes` and queues its copy to `to`.
    ///
    /// # Errors
    /// When it cannot be queued.
    ///
    /// # Safety
    /// There is memory for `bytes` at `to`, and no copy out of or into `from` is under way.
    unsafe fn upload(&mut self, from: &mut Self::Pinned, bytes: &[u8], to: u64) -> Result<(), BoardError>;

    /// Queues a copy of `len` bytes to the beginning of `to`.
    ///
    /// # Errors
    /// When it cannot be queued.
    ///
    /// # Safety
    /// There are `len` bytes at `from`, and no copy out of or into `to` is under way.
    unsafe fn download(&mut self, from: u64, len: usize, to: &mut Self::Pinned) -> Result<(), BoardError>;

    /// The first `len` bytes of `pinned`: what was downloaded, once an event behind it has passed.
    fn read(&self, pinned: &Self::Pinned, len: usize) -> Vec<u8>;

    /// An event that has passed.
    ///
    /// # Errors
    /// When the board failed.
    fn event(&mut self) -> Result<Self::Event, BoardError>;

    /// Puts an event behind what is queued; where it was before counts no more.
    ///
    /// # Errors
    /// When the board failed.
    fn record(&mut self, event: &mut Self::Event) -> Result<(), BoardError>;

    /// Waits until an event has passed.
    ///
    /// # Errors
    /// When anything queued before it failed.
    fn wait(&mut self, event: &Self::Event) -> Result<(), BoardError>;

    /// Milliseconds of the board's own time between two events that have passed.
    ///
    /// # Errors
    /// When one has not.
    fn milliseconds(&self, from: &Self::Event, to: &Self::Event) -> Result<f32, BoardError>;

    /// From here on work is recorded instead of run: kernels, multiplications and copies on the board.
    ///
    /// # Errors
    /// When the board failed.
    fn begin_capture(&mut self) -> Result<(), BoardError>;

    /// What was recorded; from here on work runs again, whatever this returns.
    ///
    /// # Errors
    /// When something was queued that cannot be recorded.
    fn end_capture(&mut self) -> Result<Self::Graph, BoardError>;

    /// Queues what was recorded.
    ///
    /// # Errors
    /// When it cannot be queued.
    fn replay(&mut self, graph: &Self::Graph) -> Result<(), BoardError>;
}
