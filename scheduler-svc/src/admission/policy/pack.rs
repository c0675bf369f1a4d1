//! `pack`: fills the token budget from the first `lookahead` requests.

use super::super::{Admission, plan::Draft};

/// Fills a round.
pub(in super::super) fn fill(core: &mut Admission, draft: &mut Draft) {
    super::fifo::fill(core, draft);
}
