//! The choice of a token from one row of logits.

use super::{Sampling, noise};

/// How many of the most likely tokens are sorted first where a top-p set is looked for.
const FIRST_SORTED: usize = 128;

impl Sampling {
    /// The token at absolute `position`, given its logits. NaN counts as never; ties go to the lowest id.
    ///
    /// # Panics
    /// When there are no logits.
    pub fn choose(&self, logits: &[f32], position: usize) -> u32 {
        let best = argmax(logits);
        let top = logits[best as usize];
        if self.is_greedy() || !top.is_finite() {
            return best;
        }
        let odds = |id: u32| f64::from(((logits[id as usize] - top) / self.temperature).exp().max(0.0));
        let noise = noise::uniform(self.seed, position);
        let least = f64::from(self.min_p);
        if self.top_k == 0 && self.top_p >= 1.0 {
            let candidates = || (0..logits.len() as u32).filter(move |&id| odds(id) >= least);
            return draw(candidates, odds, noise).unwrap_or(best);
        }
        let mut ranked = Ranked::new(logits);
        let kept = if self.top_k == 0 { logits.len() } else { (self.top_k as usize).min(logits.len()) };
        let kept = ranked.top_p(kept, f64::from(self.top_p), odds);
        let candidates = || kept.iter().copied().filter(|&id| odds(id) >= least);
        draw(candidates, odds, noise).unwrap_or(best)
    }
}

/// The largest logit's id: the lowest among equals, 0 where nothing is above negative infinity.
fn argmax(logits: &[f32]) -> u32 {
    assert!(!logits.is_empty(), "no logits to choose from");
    let mut best = (0, f32::NEG_INFINITY);
    for (id, &logit) in logits.iter().enumerate() {
        if logit > best.1 {
            best = (id, logit);
        }
    }
    best.0 as u32
}

/// Inverts the distribution function at `noise`.
fn draw<I: Iterator<Item = u32>>(
    candidates: impl Fn() -> I,
    odds: impl Fn(u32) -> f64,
    noise: f64,
) -> Option<u32> {
    let total: f64 = candidates().map(&odds).sum();
    let target = noise * total;
    let mut sum = 0.0;
    let mut last = None;
    for id in candidates() {
        let own = odds(id);
        sum += own;
        if own > 0.0 {
            last = Some(id);
        }
        if sum > target {
            return Some(id);
        }
    }
    last
}

/// Ids by falling logit, the lowest first among equals, sorted no further than asked.
struct Ranked<'a> {
    logits: &'a [f32],
    ids: Vec<u32>,
    sorted: usize,
}

impl<'a> Ranked<'a> {
    fn new(logits: &'a [f32]) -> Self {
        Self { logits, ids: (0..logits.len() as u32).collect(), sorted: 0 }
    }

    /// The smallest leading part of the first `kept` ids that holds at least the share `p` of their odds.
    fn top_p(&mut self, kept: usize, p: f64, odds: impl Fn(u32) -> f64) -> &[u32] {
        if kept < self.ids.len() {
            self.partition(kept);
        }
        let total: f64 = self.ids[..kept].iter().map(|&id| odds(id)).sum();
        if p >= 1.0 {
            self.sort_to(kept);
            return &self.ids[..kept];
        }
        let mut sum = 0.0;
        for rank in 0..kept {
            if rank == self.sorted {
                self.sort_to((4 * rank).max(FIRST_SORTED).min(kept));
            }
            sum += odds(self.ids[rank]);
            if sum >= p * total {
                return &self.ids[..=rank];
            }
        }
        &self.ids[..kept]
    }

    fn sort_to(&mut self, rank: usize) {
        if rank < self.ids.len() {
            self.partition(rank);
        }
        let (logits, from) = (self.logits, self.sorted);
        self.ids[from..rank].sort_unstable_by(|&a, &b| order(logits, a, b));
        self.sorted = rank;
    }

    /// Puts the first `rank` ids, beyond those sorted, before the others.
    fn partition(&mut self, rank: usize) {
        let (logits, from) = (self.logits, self.sorted);
        self.ids[from..].select_nth_unstable_by(rank - from, |&a, &b| order(logits, a, b));
    }
}

/// By falling logit, NaN last, then by id.
fn order(logits: &[f32], a: u32, b: u32) -> std::cmp::Ordering {
    let key = |id: u32| {
        let logit = logits[id as usize];
        if logit.is_nan() { f32::NEG_INFINITY } else { logit + 0.0 }
    };
    key(b).total_cmp(&key(a)).then(a.cmp(&b))
}

#[cfg(test)]
mod tests;
