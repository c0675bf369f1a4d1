//! Where a token is that was sampled for a row.

use super::device::Ticket;
use super::inputs::Token;

/// Where the token is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// On the host.
    Host(u32),
    /// In this row of a forward that may still be running.
    Device {
        /// The forward.
        ticket: Ticket,
        /// The row.
        row: usize,
    },
}

impl Place {
    /// Whether a forward queued now cannot read it: the device keeps what the forward before it sampled, `last`.
    pub(super) fn is_out_of_reach(self, last: Ticket) -> bool {
        matches!(self, Self::Device { ticket, .. } if ticket != last)
    }

    /// How a forward queued now gets it.
    pub(super) fn source(self) -> Token {
        match self {
            Self::Host(token) => Token::Known(token),
            Self::Device { row, .. } => Token::SampledIn(row),
        }
    }

    /// The tokens of a forward are on the host.
    pub(super) fn collected(&mut self, collected: Ticket, tokens: &[u32]) {
        if let Self::Device { ticket, row } = *self
            && ticket == collected
        {
            *self = Self::Host(tokens[row]);
        }
    }

    /// The token, once it is on the host.
    pub(super) fn on_host(self) -> Option<u32> {
        match self {
            Self::Host(token) => Some(token),
            Self::Device { .. } => None,
        }
    }
}
