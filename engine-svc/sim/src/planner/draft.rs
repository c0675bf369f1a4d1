//! Draft rows: guesses at what a sequence says next, looked up in its own tokens and executed beside its decode row.
//!
//! A draft is kept only as far as the model itself says the same, so it costs rows and never changes a token:
//! speculative decoding (Leviathan et al. 2023) with prompt lookup (Saxena 2023) in place of a second model.

use super::{ForwardPlan, Planner, Row};

/// Rows of a forward beyond which no drafts are added: they are cheap only beside few others.
const MOST_ROWS: usize = 16;

/// Tokens that have to recur before what followed them is taken as a guess: from most to fewest.
const MATCHES: [usize; 3] = [4, 3, 2];

impl Planner {
    /// Adds drafts behind the decode rows, oldest sequence first. They take free blocks only.
    pub(super) fn add_draft_rows(&mut self, plan: &mut ForwardPlan) {
        if self.shape.draft_tokens == 0 {
            return;
        }
        let most = self.limits.max_batch_size.min(MOST_ROWS);
        for row in plan.rows.clone() {
            let Some(seq) = self.sequences[row.id.index()].as_mut() else { continue };
            let count = self
                .shape
                .draft_tokens
                .min(most.saturating_sub(plan.rows.len()))
                .min(self.kv.reach(&seq.table).saturating_sub(row.end()))
                .min(seq.left_to_generate().saturating_sub(1));
            let draft = look_up(&seq.tokens, count);
            if draft.is_empty() || !self.kv.extend(&mut seq.table, row.end() + draft.len()) {
                continue;
            }
            plan.rows.extend(draft.iter().enumerate().map(|(i, &token)| Row {
                start: row.end() + i,
                draft: Some(token),
                ..row
            }));
        }
    }
}

/// What followed the last earlier occurrence of the last tokens, at most `count` tokens of it.
fn look_up(tokens: &[u32], count: usize) -> &[u32] {
    if count == 0 {
        return &[];
    }
    MATCHES
        .iter()
        .filter(|&&len| len < tokens.len())
        .find_map(|&len| {
            let (before, last) = (&tokens[..tokens.len() - 1], &tokens[tokens.len() - len..]);
            let at = before.windows(len).rposition(|window| window == last)?;
            let after = &tokens[at + len..];
            Some(&after[..count.min(after.len())])
        })
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_match_counts_and_of_equal_ones_the_latest() {
        assert_eq!(look_up(&[1, 2, 7, 1, 2, 8, 9, 1, 2], 2), [8, 9]);
        assert_eq!(look_up(&[5, 1, 2, 7, 3, 1, 2, 8, 5, 1, 2], 1), [7]);
    }

    #[test]
    fn a_run_of_one_token_guesses_that_it_goes_on() {
        assert_eq!(look_up(&[4, 4, 4, 4, 4, 4], 3), [4]);
    }

    #[test]
    fn what_does_not_recur_gives_no_guess() {
        assert_eq!(look_up(&[1, 2, 3, 4, 2], 4), [0; 0]);
        assert_eq!(look_up(&[1], 4), [0; 0]);
        assert_eq!(look_up(&[1, 2, 1, 2, 1, 2], 0), [0; 0]);
    }
}
