//! Where TTFT goes: means over a set of requests. Means add up, percentiles do not, so this is the
//! table that tells what to fix: once over all requests and once over the slowest.

use std::collections::BTreeMap;

use firstlight_proto::cause;

use crate::join::{CAUSES, Chain, PARTS, part_names};

/// The slowest are this many in a hundred, rounded up …
const SLOWEST_PERCENT: usize = 1;
/// … but at least this many.
const SLOWEST_AT_LEAST: usize = 5;

/// Means over a set of requests, ms. Parts and the remainder add up to the TTFT.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Breakdown {
    /// Requests.
    pub n: usize,
    /// Mean TTFT.
    pub ttft_ms: f64,
    /// Mean of each part; a request in which it is missing counts as 0; `None` when all miss it.
    pub parts_ms: [Option<f64>; PARTS],
    /// Mean of each cause of waiting, stamp 3 → 6.
    pub causes_ms: [f64; CAUSES],
    /// Mean remainder.
    pub unexplained_ms: f64,
}

/// The means of `chains`; `None` of no chain.
pub fn breakdown<'a>(chains: impl IntoIterator<Item = &'a Chain>) -> Option<Breakdown> {
    let mut b = Breakdown::default();
    for chain in chains {
        b.n += 1;
        b.ttft_ms += ms(chain.ttft_ns);
        b.unexplained_ms += ms(chain.unexplained_ns);
        for (sum, part) in b.parts_ms.iter_mut().zip(&chain.parts) {
            if let Some(part) = part {
                *sum.get_or_insert(0.0) += ms(part.ns);
            }
        }
        if chain.queue_wait_total.is_some() {
            for (sum, ns) in b.causes_ms.iter_mut().zip(&chain.causes) {
                *sum += ms(*ns);
            }
        }
    }
    let n = b.n as f64;
    b.ttft_ms /= n;
    b.unexplained_ms /= n;
    b.parts_ms.iter_mut().flatten().for_each(|x| *x /= n);
    b.causes_ms.iter_mut().for_each(|x| *x /= n);
    (b.n > 0).then_some(b)
}

/// The slowest ⌈1 %⌉ by TTFT, at least 5 (or all, when there are fewer).
pub fn slowest<'a>(chains: &[&'a Chain]) -> Vec<&'a Chain> {
    let n = (chains.len() * SLOWEST_PERCENT).div_ceil(100).max(SLOWEST_AT_LEAST).min(chains.len());
    let mut by_ttft = chains.to_vec();
    by_ttft.sort_by_key(|c| std::cmp::Reverse(c.ttft_ns));
    by_ttft.truncate(n);
    by_ttft
}

impl Breakdown {
    /// The parts that were measured, by name.
    pub fn parts(&self) -> BTreeMap<String, f64> {
        let named = part_names().into_iter().zip(self.parts_ms);
        named.filter_map(|(name, ms)| Some((name.to_owned(), ms?))).collect()
    }

    /// The causes that took time, by name.
    pub fn causes(&self) -> BTreeMap<String, f64> {
        let all = cause::ALL.into_iter().map(|c| (c.label(), self.causes_ms[c as usize]));
        let unnamed = [("unspecified", self.causes_ms[0])];
        all.chain(unnamed).filter(|(_, ms)| *ms != 0.0).map(|(name, ms)| (name.to_owned(), ms)).collect()
    }
}

fn ms(ns: i64) -> f64 {
    ns as f64 / 1e6
}
