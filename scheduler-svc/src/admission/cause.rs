//! Why a pending request waits: the causes the queue can charge, and time split by them.

use std::ops::{Index, IndexMut};

use firstlight_proto::v1;

/// The limit or state that keeps a pending request out. The order of the first four is the order in
/// which limits are blamed when several would refuse.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Cause {
    /// `max_active_requests`, or the engine's own bound on sequences, is reached.
    MaxActive,
    /// The engine has not enough KV blocks left to promise.
    KvBlocks,
    /// The round's `prefill_max_tokens` is used up.
    TokenBudget,
    /// The round's `prefill_max_batch_size` is used up.
    BatchSize,
    /// A later arrival of another lane was taken first.
    FairShare,
    /// No engine had credit since the request was queued.
    EngineBusy,
    /// No engine is attached, all of them drain, or none of those that stay could ever hold the request.
    NoEngine,
}

impl Cause {
    /// Every cause, in the order they are blamed and printed.
    pub const ALL: [Self; 7] = [
        Self::MaxActive,
        Self::KvBlocks,
        Self::TokenBudget,
        Self::BatchSize,
        Self::FairShare,
        Self::EngineBusy,
        Self::NoEngine,
    ];

    /// Its name in metrics, JSON and text.
    pub fn label(self) -> &'static str {
        v1::Cause::from(self).label()
    }
}

impl From<Cause> for v1::Cause {
    fn from(cause: Cause) -> Self {
        match cause {
            Cause::MaxActive => Self::MaxActive,
            Cause::KvBlocks => Self::KvBlocks,
            Cause::TokenBudget => Self::TokenBudget,
            Cause::BatchSize => Self::BatchSize,
            Cause::FairShare => Self::FairShare,
            Cause::EngineBusy => Self::EngineBusy,
            Cause::NoEngine => Self::NoEngine,
        }
    }
}

/// One number per cause; nanoseconds unless it says otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ByCause<T = i64>([T; Cause::ALL.len()]);

impl<T: Copy> ByCause<T> {
    /// The same number for every cause.
    pub(super) fn filled(value: T) -> Self {
        Self([value; Cause::ALL.len()])
    }

    /// Each cause with its number.
    pub fn iter(&self) -> impl Iterator<Item = (Cause, T)> + '_ {
        Cause::ALL.into_iter().zip(self.0.iter().copied())
    }
}

impl ByCause<i64> {
    /// Time over all causes, ns.
    pub fn total(&self) -> i64 {
        self.0.iter().sum()
    }

    pub(super) fn plus(mut self, other: &Self) -> Self {
        self.0.iter_mut().zip(&other.0).for_each(|(a, b)| *a += b);
        self
    }

    pub(super) fn minus(mut self, other: &Self) -> Self {
        self.0.iter_mut().zip(&other.0).for_each(|(a, b)| *a -= b);
        self
    }
}

impl<T> Index<Cause> for ByCause<T> {
    type Output = T;
    fn index(&self, cause: Cause) -> &T {
        &self.0[cause as usize]
    }
}

impl<T> IndexMut<Cause> for ByCause<T> {
    fn index_mut(&mut self, cause: Cause) -> &mut T {
        &mut self.0[cause as usize]
    }
}
