//! What is asked for: requests as the core sees them, and the units it counts in.

use std::{fmt, ops::Add};

use firstlight_proto::clock::Stamp;

/// Names a request from [`offer`](super::Admission::offer) until it has left. Never reused while the
/// core remembers it: a key that is stale is recognised as unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(pub(super) u64);

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.0 & 0xffff_ffff, self.0 >> 32)
    }
}

/// A number of tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tokens(pub u32);

impl Add for Tokens {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

/// A number of KV blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Blocks(pub u32);

/// A class of requests (`priority` has one lane for each). The caller maps names to numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Class(pub u16);

/// Who sent a request (`fair` has one lane for each). The caller maps names to numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tenant(pub u32);

/// A request at the door.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Prompt length.
    pub prompt: Tokens,
    /// Most tokens to generate.
    pub max_new: Tokens,
    /// Its class.
    pub class: Class,
    /// Its tenant.
    pub tenant: Tenant,
    /// When its caller stops waiting, on the clock of all other stamps.
    pub deadline: Option<Stamp>,
}

impl Request {
    /// A request of the default class and tenant, without deadline.
    pub fn new(prompt: Tokens, max_new: Tokens) -> Self {
        Self { prompt, max_new, class: Class::default(), tenant: Tenant::default(), deadline: None }
    }

    /// Positions it occupies when it runs to its end.
    pub fn positions(&self) -> Tokens {
        self.prompt + self.max_new
    }
}
