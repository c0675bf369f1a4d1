//! How long to wait before dialling again.

use std::time::Duration;

/// Doubles from `FIRST` to `LAST`, and starts over once a link has held for `LAST`.
#[derive(Debug)]
pub struct Backoff {
    next: Duration,
}

const FIRST: Duration = Duration::from_millis(50);
const LAST: Duration = Duration::from_secs(2);

impl Backoff {
    /// At the start.
    pub fn new() -> Self {
        Self { next: FIRST }
    }

    /// The wait after a link that held for `held`.
    pub fn after(&mut self, held: Duration) -> Duration {
        if held >= LAST {
            self.next = FIRST;
        }
        let wait = self.next;
        self.next = (wait * 2).min(LAST);
        wait
    }
}

impl Default for Backoff {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_to_a_bound_and_start_over_after_a_link_that_held() {
        let mut backoff = Backoff::new();
        let waits: Vec<_> = (0..10).map(|_| backoff.after(Duration::ZERO)).collect();
        assert!(waits.is_sorted() && waits[0] == FIRST && waits[9] == LAST);
        assert_eq!(backoff.after(LAST), FIRST);
    }
}
