//! What tells one request of a load from another, so that two runs are compared request by request only
//! where they asked the same at the same time. Pure.

use super::pacer::Due;
use crate::target::{Ask, Prompt};

/// A number per request that depends on when it is due, what it asks and how many tokens it wants: the
/// same on every machine and in every version.
pub fn fingerprints(due: &Due, asks: &[Ask]) -> Vec<u64> {
    let due_ns = |index: usize| match due {
        Due::At(times) => times.get(index).copied().unwrap_or(i64::MAX),
        Due::AfterPrevious { gap, .. } => gap.as_nanos() as i64,
    };
    asks.iter().enumerate().map(|(index, ask)| of(due_ns(index), ask)).collect()
}

fn of(due_ns: i64, ask: &Ask) -> u64 {
    let mut hash = Fnv::default();
    hash.take(&due_ns.to_le_bytes());
    hash.take(&ask.max_new_tokens.to_le_bytes());
    match &ask.prompt {
        Prompt::Text(text) => hash.take(text.as_bytes()),
        Prompt::Ids(ids) => ids.iter().for_each(|id| hash.take(&id.to_le_bytes())),
    }
    hash.0
}

/// FNV-1a (Fowler, Noll, Vo).
struct Fnv(u64);

impl Default for Fnv {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl Fnv {
    fn take(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_time_prompt_or_length_is_another_request() {
        let ask = |text: &str, max_new_tokens| Ask::new(Prompt::Text(text.into()), max_new_tokens);
        let one = |due_ns, ask: Ask| fingerprints(&Due::At(vec![due_ns]), &[ask])[0];
        let first = one(0, ask("Hello", 4));
        assert_eq!(first, one(0, ask("Hello", 4)));
        for other in [one(1, ask("Hello", 4)), one(0, ask("Hello!", 4)), one(0, ask("Hello", 5))] {
            assert_ne!(first, other);
        }
    }
}
