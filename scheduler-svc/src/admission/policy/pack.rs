//! `pack`: when the next request in order does not fit what is left of the round's tokens or blocks, looks at
//! the first `lookahead` requests and takes the set that fills the token budget best; of equally good sets,
//! the one with the earliest arrivals. While only the number of requests binds, nobody is overtaken.
//!
//! Overtaking is bounded: every `force_fifo_every`-th round, and as soon as the head has been passed over for
//! `max_overtaking_age`, the turn is the head's. A due turn holds, and admits no one else, until it has gone.

use firstlight_proto::clock::Stamp;

use super::super::{
    Admission,
    book::Slot,
    budget::Budget,
    cause::Cause,
    plan::Draft,
    round::{Need, Room},
};

/// Whose turn it is, and scratch space.
#[derive(Debug, Default)]
pub(in super::super) struct Turns {
    /// Rounds since the last fifo turn.
    rounds: u32,
    knapsack: Knapsack,
}

/// Fills a round.
pub(in super::super) fn fill(core: &mut Admission, draft: &mut Draft) {
    turn_away_hopeless(core, draft.now);
    let Some(head) = core.waiting.lanes.next() else { return };
    if core.turns.fifo_is_due(&core.budget, core.book.pending(head).headed, draft.now) {
        super::fifo::fill(core, draft);
        if core.waiting.lanes.next() != Some(head) {
            core.turns.rounds = 0;
        }
        return;
    }
    match in_order(core, draft) {
        Some(refused_at) if refused_at < core.budget.lookahead as usize => best_of_lookahead(core, draft),
        _ => super::fifo::fill(core, draft),
    }
    core.turns.rounds += u32::from(!draft.batch.is_empty());
}

impl Turns {
    fn fifo_is_due(&self, budget: &Budget, headed: Option<Stamp>, now: Stamp) -> bool {
        let every = budget.force_fifo_every;
        let by_count = every > 0 && self.rounds + 1 >= every;
        let age = headed.map_or(0, |headed| now.since(headed));
        let oldest = budget.max_overtaking_age.as_nanos() as i64;
        by_count || (oldest > 0 && age >= oldest)
    }
}

/// The place of the first request in order that tokens or blocks refuse; `None` when what ends the round
/// in order is its number of requests, or the queue.
fn in_order(core: &Admission, draft: &Draft) -> Option<usize> {
    let mut room = draft.room;
    let lane = core.waiting.lanes.first()?;
    for (place, slot) in core.waiting.lanes.get(lane).iter(&core.book).enumerate() {
        let need = core.need(slot, &draft.geometry);
        match room.refusal(need) {
            None => room.take(need),
            Some(Cause::TokenBudget | Cause::KvBlocks) if room.places > 0 => return Some(place),
            Some(_) => return None,
        }
    }
    None
}

fn best_of_lookahead(core: &mut Admission, draft: &mut Draft) {
    let examined = examine(core, draft);
    let mut knapsack = std::mem::take(&mut core.turns.knapsack);
    let chosen = knapsack.choose(&examined, &draft.room);
    core.turns.knapsack = knapsack;
    let (taken, mut left): (Vec<_>, Vec<_>) = examined.iter().zip(chosen).partition(|(_, chosen)| *chosen);
    let mut batch: Vec<(usize, Slot, Need)> = Vec::new();
    let mut room = draft.room;
    // The set was chosen by tokens; blocks may still refuse a part of it. What then fits besides goes too,
    // so that everyone left is refused by some limit. If no set fits, the head goes alone.
    left.sort_by_key(|(examined, _)| examined.place);
    for (Examined { place, slot, need }, _) in taken.into_iter().chain(left) {
        if room.refusal(*need).is_none() {
            room.take(*need);
            batch.push((*place, *slot, *need));
        }
    }
    batch.sort_unstable_by_key(|(place, ..)| *place);
    let mut in_batch = batch.iter().map(|(place, ..)| *place).peekable();
    for Examined { place, slot, need } in &examined {
        if in_batch.next_if_eq(place).is_some() {
            continue;
        }
        let cause = room.refusal(*need).expect("whoever fits was taken");
        draft.stopped_by.get_or_insert(cause);
        draft.passed.push((*slot, cause));
    }
    for (_, slot, need) in batch {
        core.admit(draft, slot, need);
    }
}

/// A request in the lookahead.
struct Examined {
    place: usize,
    slot: Slot,
    need: Need,
}

fn examine(core: &Admission, draft: &Draft) -> Vec<Examined> {
    let examined = |(place, slot)| Examined { place, slot, need: core.need(slot, &draft.geometry) };
    lookahead(core).into_iter().enumerate().map(examined).collect()
}

fn lookahead(core: &Admission) -> Vec<Slot> {
    let Some(lane) = core.waiting.lanes.first() else { return Vec::new() };
    core.waiting.lanes.get(lane).iter(&core.book).take(core.budget.lookahead as usize).collect()
}

/// Leaves no one in the lookahead that can never be admitted.
fn turn_away_hopeless(core: &mut Admission, now: Stamp) {
    while lookahead(core).into_iter().filter(|slot| core.clear_away_if_hopeless(*slot, now)).count() > 0 {}
}

/// Which of some requests fill a number of tokens best, in so many places.
#[derive(Debug, Default)]
struct Knapsack {
    /// Row i, column s: the fewest of the requests i… that sum to s.
    fewest: Vec<u16>,
}

impl Knapsack {
    /// Table cells: bounds time and memory. A budget with more tokens than columns is counted in grains.
    const CELLS: usize = 1 << 20;
    const COLUMNS: usize = 4096;
    const NEVER: u16 = u16::MAX;

    /// Which to take. Exact for budgets up to 4096 tokens and 256 requests; beyond, to a grain per request.
    fn choose(&mut self, examined: &[Examined], room: &Room) -> Vec<bool> {
        let columns = (Self::CELLS / (examined.len() + 1)).min(Self::COLUMNS);
        let grain = room.tokens.0.div_ceil(columns as u32).max(1);
        let most = (room.tokens.0 / grain) as usize;
        let weight = |need: &Need| {
            let fits = need.blocks <= room.blocks && need.tokens <= room.tokens;
            fits.then(|| need.tokens.0.div_ceil(grain) as usize).filter(|weight| *weight <= most)
        };
        let weights: Vec<_> = examined.iter().map(|e| weight(&e.need)).collect();
        self.fill(&weights, most);
        let places = room.places.min(room.active).min(u32::from(Self::NEVER) - 1) as u16;
        self.read(&weights, most, places)
    }

    fn fill(&mut self, weights: &[Option<usize>], most: usize) {
        let width = most + 1;
        self.fewest.clear();
        self.fewest.resize((weights.len() + 1) * width, Self::NEVER);
        self.fewest[weights.len() * width] = 0;
        for (i, weight) in weights.iter().enumerate().rev() {
            let (rows, without) = self.fewest.split_at_mut((i + 1) * width);
            let (row, without) = (&mut rows[i * width..], &without[..width]);
            row.copy_from_slice(without);
            if let Some(weight) = weight {
                for (cell, with) in row[*weight..].iter_mut().zip(without) {
                    *cell = (*cell).min(with.saturating_add(1));
                }
            }
        }
    }

    fn read(&self, weights: &[Option<usize>], most: usize, mut places: u16) -> Vec<bool> {
        let width = most + 1;
        let fewest = |row: usize, sum: usize| self.fewest[row * width + sum];
        let mut sum = (0..width).rev().find(|sum| fewest(0, *sum) <= places).unwrap_or(0);
        let take = |(i, weight): (usize, &Option<usize>)| {
            let take = weight
                .is_some_and(|weight| places > 0 && weight <= sum && fewest(i + 1, sum - weight) < places);
            if take {
                sum -= weight.unwrap_or(0);
                places -= 1;
            }
            take
        };
        weights.iter().enumerate().map(take).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::super::request::{Blocks, Tokens},
        *,
    };
    use crate::admission::book::Slot;

    fn room(tokens: u32, places: u32) -> Room {
        Room { active: 1000, blocks: Blocks(1 << 20), tokens: Tokens(tokens), places, empty: true }
    }

    fn examined(tokens: &[u32]) -> Vec<Examined> {
        let need = |t: &u32| Need { tokens: Tokens(*t), blocks: Blocks(1) };
        tokens
            .iter()
            .enumerate()
            .map(|(place, t)| Examined { place, slot: Slot::NONE, need: need(t) })
            .collect()
    }

    fn chosen(tokens: &[u32], budget: u32, places: u32) -> Vec<u32> {
        let chosen = Knapsack::default().choose(&examined(tokens), &room(budget, places));
        tokens.iter().zip(chosen).filter_map(|(t, chosen)| chosen.then_some(*t)).collect()
    }

    #[test]
    fn the_set_fills_the_budget_best() {
        assert_eq!(chosen(&[600, 500, 400], 900, 16), [500, 400]);
        assert_eq!(chosen(&[8, 5, 3, 2], 11, 16), [8, 3]);
        assert_eq!(chosen(&[9, 5, 3, 2], 10, 16), [5, 3, 2]);
        assert_eq!(chosen(&[9, 5, 3, 2], 10, 2), [9]);
    }

    #[test]
    fn of_equally_good_sets_the_earliest_arrivals_are_taken() {
        assert_eq!(
            Knapsack::default().choose(&examined(&[4, 4, 4, 4]), &room(8, 16)),
            [true, true, false, false]
        );
    }

    #[test]
    fn what_is_larger_than_the_budget_is_not_chosen() {
        assert_eq!(chosen(&[50, 6], 10, 16), [6]);
        assert!(chosen(&[50, 60], 10, 16).is_empty());
    }

    #[test]
    fn no_subset_fills_more() {
        let tokens = [31, 47, 12, 59, 23, 8, 41, 17];
        for (budget, places) in [(60, 3), (100, 2), (77, 8), (13, 1), (150, 4)] {
            let best = (0..1_u32 << tokens.len())
                .filter(|set| set.count_ones() <= places)
                .map(|set| (0..tokens.len()).filter(|i| set >> i & 1 == 1).map(|i| tokens[i]).sum::<u32>())
                .filter(|sum| *sum <= budget)
                .max();
            assert_eq!(Some(chosen(&tokens, budget, places).iter().sum()), best);
        }
    }

    #[test]
    fn a_budget_counted_in_grains_is_never_overdrawn() {
        let tokens: Vec<u32> = (1..=64).map(|i| i * 997 % 9_001).collect();
        let sum: u32 = chosen(&tokens, 100_000, 64).iter().sum();
        assert!((99_000..=100_000).contains(&sum), "{sum}");
    }
}
